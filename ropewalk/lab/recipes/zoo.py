"""`zoo`: one small model under each trained-in method, with equal budgets, read at one to eight times its length."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.corpora import WHOLE, documents
from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.evaluation import passages, repeated, token_losses
from ropewalk.files import read_json, read_record, read_text, why
from ropewalk.folders import write_whole
from ropewalk.hf import load
from ropewalk.lab.recipes.pretrain import extension_for, pretrain, vocabulary_in
from ropewalk.lab.recipes.zoo_page import zoo_page
from ropewalk.lab.small_models import ModelShape
from ropewalk.lab.training.train import TrainingPlan

TIMES = (1, 2, 4, 8)  # the trained length
FARTHEST = 16  # numbers that are drawn, in trained lengths: twice the longest text


class ZooMethod(NamedTuple):
    """What is trained in, as a line and a shape."""

    extension: str = ""
    shape: Mapping[str, Any] = {}
    drawn: bool = False  # whether positions are, from FARTHEST times the trained length

    def line(self, shape: ModelShape) -> str:
        """The extension for a model of this shape."""
        values = {"window": max(2, shape.trained_len // shape.layers), "limit": FARTHEST * shape.trained_len}
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
PUZZLES = {"repeats": 0.4, "recall": 0.1}  # what repeated text asks for, in rows of the trained length


def zoo(
    out: str | Path,
    plan: TrainingPlan,
    *,
    shape: ModelShape,
    methods: str = EVERY,
    seeds: int = 3,
    texts: int = 32,
    corpus: str = "python",
    characters: int = 60_000_000,
    puzzles: Mapping[str, float] = PUZZLES,
) -> Path:
    """Train the same small model under each trained-in method and measure it from 1x to 8x the trained length.

    Every finished model and every measurement is kept: the same call goes on. Results are zoo.json and zoo.md.
    """
    folder = Path(out)
    names = _known(methods)
    _require_held_out(corpus)
    if shape.places != "rotary":
        raise InvalidValue("places", "rotary, from which methods depart as they need", shape.places)
    read = {"corpus": corpus, "characters": characters, "puzzles": dict(puzzles)}
    held_out = _held_out(folder, shape, corpus, texts)
    for seed in range(plan.seed, plan.seed + seeds):
        for name in names:
            kept, place = (folder / part / f"{name}-{seed}" for part in ("measured", "models"))
            if not kept.with_suffix(".json").is_file():
                figures = _one(place, name, replace(plan, seed=seed), shape, read, held_out)
                if figures is None:  # a signal came
                    return folder
                write_whole(kept.with_suffix(".json"), json.dumps(figures, indent=1) + "\n")
            _report(folder, plan, shape, {**read, "texts": texts})
    return folder / "zoo.md"


def _known(methods: str) -> list[str]:
    names = [name.strip() for name in methods.split(",")]
    for name in names:
        if name not in METHODS:
            raise UnknownName("method", name, known=METHODS, owner="the zoo")
    return names


def _require_held_out(corpus: str) -> None:
    if corpus.startswith(WHOLE):
        rule = "one of which something is held out, to read the models on"
        raise InvalidValue("corpus", rule, corpus, remedy=f"say {corpus.removeprefix(WHOLE)}")


def _held_out(folder: Path, shape: ModelShape, corpus: str, texts: int) -> Tensor:
    """The texts that all models are read on, [texts, longest], kept with the tokenizer that all share."""
    kept = folder / "held_out.json"
    if not kept.is_file():
        tokenizer = vocabulary_in(folder, corpus, shape.vocabulary)
        found = documents(corpus, "held out")
        ids = passages(found, tokenizer, length=max(TIMES) * shape.trained_len, count=texts)
        write_whole(kept, json.dumps(ids.tolist()))
    read = read_json(read_text(kept, "held_out", "the texts of this zoo"), str(kept))
    try:
        return torch.tensor(read, dtype=torch.long).reshape(texts, max(TIMES) * shape.trained_len)
    except (TypeError, ValueError, RuntimeError) as wrong:
        rule = f"{texts} texts of {max(TIMES) * shape.trained_len} tokens"
        raise Unreadable(str(kept), rule, why(wrong), remedy="remove it, and it is made again") from wrong


def _one(
    place: Path, name: str, plan: TrainingPlan, shape: ModelShape, read: Mapping[str, Any], held_out: Tensor
) -> dict[str, Any] | None:
    """One model, trained if it is not yet, and measured; nothing where training was stopped."""
    own = replace(shape, **METHODS[name].shape)
    line, began = METHODS[name].line(shape), time.process_time()
    if not (place / "model" / "config.json").is_file():
        shared = place.parents[1]
        pretrain(place, plan, shape=own, extension=line, packed=False, shared=shared, **read)
        if not (place / "model" / "config.json").is_file():
            return None
    seconds = time.process_time() - began
    figures = _measured(place / "model", extension_for(own, line).positions, held_out, shape.trained_len)
    for checkpoint in place.glob("checkpoint-*"):
        rmtree(checkpoint)  # the model is finished
    return {"method": name, "seed": plan.seed, "extension": line, "cpu_seconds": round(seconds, 1), "figures": figures}


def _measured(folder: Path, numbering: Any, held_out: Tensor, trained_len: int) -> list[dict[str, Any]]:
    model, found = load(folder), []
    for times, kind, ids in _readings(held_out, trained_len):
        got = token_losses(model, ids, numbering=numbering)
        row = {"times": times, "kind": kind, "accuracy": got.accuracy(), "loss": got.loss()}
        found.append({**row, "last_accuracy": got.accuracy(trained_len - 1), "last_loss": got.loss(trained_len - 1)})
    return found


def _readings(held_out: Tensor, trained_len: int) -> Iterator[tuple[int, str, Tensor]]:
    """The same tokens at every length, in fewer and longer pieces; and the first piece of each again and again."""
    for times in TIMES:
        yield times, "non-repeated", held_out.reshape(-1, times * trained_len)
        yield times, "repeated", repeated(held_out[:, :trained_len], times * trained_len)


def _report(folder: Path, plan: TrainingPlan, shape: ModelShape, read: Mapping[str, Any]) -> None:
    """Everything that is measured so far, as one JSON file and as a page."""
    results = {
        "ropewalk": version("ropewalk"),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "plan": {name: each for name, each in asdict(plan).items() if name != "seed"},
        "shape": asdict(shape),
        "read": dict(read),
        "models": [read_record(path, "what was measured") for path in sorted((folder / "measured").glob("*.json"))],
    }
    write_whole(folder / "zoo.json", json.dumps(results, indent=1) + "\n")
    write_whole(folder / "zoo.md", zoo_page(results))
