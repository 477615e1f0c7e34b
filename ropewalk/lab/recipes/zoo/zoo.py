"""`zoo`: one small model under every trained-in method, with equal budgets, measured at 1x to 8x its length."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ropewalk.corpora import WHOLE, documents
from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.evaluation import passages, repeated, token_losses
from ropewalk.files import read_json, read_record, read_text, why
from ropewalk.folders import write_whole
from ropewalk.hf import load
from ropewalk.lab.data.puzzles import PuzzleShares
from ropewalk.lab.recipes.pretrain import PretrainSettings, extension_for, pretrain, vocabulary_in
from ropewalk.lab.recipes.recipe import Characters, Corpus, RecipeSettings
from ropewalk.lab.recipes.zoo.zoo_page import zoo_page
from ropewalk.lab.small_models import ModelShape
from ropewalk.lab.training.train import WATCHING
from ropewalk.record import AT_LEAST_ONE

TIMES = (1, 2, 4, 8)  # the trained length
FARTHEST = 16  # range that positions are drawn from, in trained lengths: twice the longest text


class ZooMethod(NamedTuple):
    """A trained-in method: an extension and what it changes in the model shape."""

    extension: str = ""
    shape: Mapping[str, Any] = {}
    drawn: bool = False  # positions are drawn from FARTHEST times the trained length

    def line(self, shape: ModelShape) -> str:
        """The extension for a model of this shape."""
        share = max(2, shape.trained_len // shape.layers)
        values = {"window": share, "limit": FARTHEST * shape.trained_len}
        return self.extension.format(**values)


METHODS: Mapping[str, ZooMethod] = {
    "rope": ZooMethod(),
    "qk_bias": ZooMethod("qk_bias"),
    "key_norm": ZooMethod(shape={"key_norm": True}),
    "log_n": ZooMethod("log_n:clipped=false"),
    "nope": ZooMethod("nope"),
    "alibi": ZooMethod("alibi"),
    "kerple": ZooMethod("kerple"),
    "sandwich": ZooMethod("sandwich"),
    "xpos": ZooMethod("xpos+bca"),
    "window": ZooMethod("window:window={window}"),
    "hwfa": ZooMethod("hwfa"),
    "hwfa_rerope": ZooMethod("hwfa_rerope"),
    "randomized_rotary": ZooMethod("randomized:limit={limit}"),
    "randomized_learned": ZooMethod("randomized:limit={limit}", {"places": "learned"}),
}
EVERY = ",".join(METHODS)
# One model, 3 M tokens, takes six minutes of one core: a small vocabulary, short rows and many repeats, so that a
# model as small as this learns to look back at all (docs/log.md).
SHAPE = ModelShape(vocabulary=320, width=96, inner=256, layers=6, trained_len=64)
PUZZLES = PuzzleShares(repeats=0.4, recall=0.1)  # what repeated text needs, in rows this short


@dataclass(frozen=True, kw_only=True)
class ZooSettings(RecipeSettings):
    """Which methods are trained, how often, and what they are measured on."""

    methods: Annotated[str, "names, separated by commas"] = EVERY
    seeds: Annotated[int, AT_LEAST_ONE, "models of each method"] = 3
    texts: Annotated[int, AT_LEAST_ONE, "held-out texts, each eight times the trained length"] = 32
    corpus: Corpus = "python"
    characters: Characters = 20_000_000
    shape: ModelShape = SHAPE
    puzzles: PuzzleShares = PUZZLES

    plan_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 3000,
        "rows": 16,
        "learning_rate": 3e-3,
        "save_every": 500,
        "log_every": 100,
    }
    changeable: ClassVar[tuple[str, ...]] = ("methods", "seeds", *WATCHING)


def zoo(out: str | Path, settings: ZooSettings) -> Path:
    """Train the same small model under each trained-in method and measure it from 1x to 8x the trained length.

    Every finished model and every measurement is kept: the same call resumes. Results are zoo.json and zoo.md.
    """
    folder, plan = Path(out), settings.plan
    names = _known(settings.methods)
    _require_held_out(settings.corpus)
    if settings.shape.places != "rotary":
        rule = "rotary; methods that need another kind change it themselves"
        raise InvalidValue("places", rule, settings.shape.places)
    held_out = _held_out(folder, settings)
    for seed in range(plan.seed, plan.seed + settings.seeds):
        for name in names:
            measured_file = folder / "measured" / f"{name}-{seed}.json"
            if not measured_file.is_file():
                figures = _one(folder, name, replace(settings, plan=replace(plan, seed=seed)), held_out)
                if figures is None:  # a signal came
                    return folder
                write_whole(measured_file, json.dumps(figures, indent=1) + "\n")
            _report(folder, settings)
    return folder / "zoo.md"


def _known(methods: str) -> list[str]:
    names = [name.strip() for name in methods.split(",")]
    for name in names:
        if name not in METHODS:
            raise UnknownName("method", name, known=METHODS, owner="the zoo")
    return names


def _require_held_out(corpus: str) -> None:
    if corpus.startswith(WHOLE):
        rule = "one with a held-out part, to measure the models on"
        raise InvalidValue("corpus", rule, corpus, remedy=f"pass {corpus.removeprefix(WHOLE)}")


def _held_out(folder: Path, settings: ZooSettings) -> Tensor:
    """The texts that all models are measured on, [texts, longest], stored with the tokenizer that all share."""
    stored, count, length = folder / "held_out.json", settings.texts, max(TIMES) * settings.shape.trained_len
    if not stored.is_file():
        tokenizer = vocabulary_in(folder, settings.corpus, settings.shape.vocabulary)
        ids = passages(documents(settings.corpus, "held out"), tokenizer, length=length, count=count)
        write_whole(stored, json.dumps(ids.tolist()))
    tokens = read_json(read_text(stored, "held_out", "the texts of this zoo"), str(stored))
    try:
        return torch.tensor(tokens, dtype=torch.long).reshape(count, length)
    except (TypeError, ValueError, RuntimeError) as wrong:
        rule = f"{count} texts of {length} tokens"
        raise Unreadable(str(stored), rule, why(wrong), remedy="remove it, and it is made again") from wrong


def _one(folder: Path, name: str, settings: ZooSettings, held_out: Tensor) -> dict[str, Any] | None:
    """Train one model, unless it is finished already, and measure it; None where training was stopped."""
    seed, trained_len = settings.plan.seed, settings.shape.trained_len
    place = folder / "models" / f"{name}-{seed}"
    pretraining, began = _pretraining(name, settings), time.process_time()
    if not (place / "model" / "config.json").is_file():
        pretrain(place, pretraining, shared=folder)
        if not (place / "model" / "config.json").is_file():
            return None
    seconds, line = time.process_time() - began, pretraining.extension
    numbering = extension_for(pretraining.shape, line).positions
    figures = _measured(place / "model", numbering, held_out, trained_len)
    for checkpoint in place.glob("checkpoint-*"):
        rmtree(checkpoint)  # the model is finished
    return {"method": name, "seed": seed, "extension": line, "cpu_seconds": round(seconds, 1), "figures": figures}


def _pretraining(name: str, settings: ZooSettings) -> PretrainSettings:
    """The settings under which one method is trained."""
    return PretrainSettings(
        plan=settings.plan,
        shape=replace(settings.shape, **METHODS[name].shape),
        extension=METHODS[name].line(settings.shape),
        packed=False,
        corpus=settings.corpus,
        characters=settings.characters,
        puzzles=settings.puzzles,
    )


def _measured(folder: Path, numbering: Any, held_out: Tensor, trained_len: int) -> list[dict[str, Any]]:
    """Each reading: means over all tokens and over the last ones of each row, and the latter text by text."""
    model, rows, last = load(folder), [], trained_len - 1
    for times, kind, ids in _readings(held_out, trained_len):
        got = token_losses(model, ids, numbering=numbering)
        of_texts = got.hits_bn[:, -last:].double().mean(1).reshape(len(held_out), -1).mean(1)
        row = {"times": times, "kind": kind, "accuracy": got.accuracy(), "loss": got.loss()}
        row |= {"last_accuracy": got.accuracy(last), "last_loss": got.loss(last)}
        rows.append({**row, "last_accuracy_of_texts": [round(share, 6) for share in of_texts.tolist()]})
    return rows


def _readings(held_out: Tensor, trained_len: int) -> Iterator[tuple[int, str, Tensor]]:
    """The same tokens at every length, as fewer and longer texts; and the beginning of each text repeated."""
    for times in TIMES:
        yield times, "non-repeated", held_out.reshape(-1, times * trained_len)
        yield times, "repeated", repeated(held_out[:, :trained_len], times * trained_len)


def _report(folder: Path, settings: ZooSettings) -> None:
    """Write everything that is measured so far, as one JSON file and as a page."""
    material = {name: getattr(settings, name) for name in ("corpus", "characters", "texts")}
    results = {
        "ropewalk": version("ropewalk"),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "plan": {name: value for name, value in asdict(settings.plan).items() if name != "seed"},
        "shape": asdict(settings.shape),
        "read": {**material, "puzzles": settings.puzzles.shares()},
        "models": [read_record(path, "what was measured") for path in sorted((folder / "measured").glob("*.json"))],
    }
    write_whole(folder / "zoo.json", json.dumps(results, indent=1) + "\n")
    write_whole(folder / "zoo.md", zoo_page(results))
