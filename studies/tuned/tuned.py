"""`tuned`: a model under each schedule, as it is and after a few steps of training, measured from 1x its length on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from transformers import PreTrainedModel

from ropewalk import extend, extended, load
from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.files import read_record
from ropewalk.folders import write_whole
from ropewalk.hf.probe.facts import trained_len
from ropewalk.measure.comparison.store import provenance
from ropewalk.measure.material.subject import FILLERS, Subject, marks_of
from ropewalk.measure.metrics.losses import HeldOutTexts, token_losses
from ropewalk.measure.tasks import Passkey
from ropewalk.methods.record import AT_LEAST_ONE, Rule
from ropewalk.train.checkpoints import changed_settings
from ropewalk.train.data.puzzles import NO_PUZZLES, PuzzleShares
from ropewalk.train.recipes.building_blocks import GENTLE, LOGGED, checkpoint
from ropewalk.train.recipes.carry_on import CarryOnSettings, carry_on
from ropewalk.train.recipes.drope import DroPESettings, drope
from ropewalk.train.recipes.recipe import Characters, Corpus, Model, RecipeSettings
from ropewalk.train.train import LONGER, PLAN

from studies.models_table import (
    MEASURED,
    PACKED,
    finished,
    held_out_in,
    measured_file,
    measured_in,
    named_methods,
    require_held_out,
    write_measured,
)
from studies.tuned.claims import OF_LLAMA_LONG, verdicts
from studies.tuned.figures import FEW, LONGEST
from studies.tuned.tuned_page import tuned_page

NOT_OF_THE_TABLE = ("seed", "progress", "report_to", "workers", "save_every")  # what may differ between two calls
SHOWN = ("step", "loss", "grad_norm")
MOST = 256
A_TABLE = Rule(f"a power of two from 4 to {MOST}", lambda value: 4 <= value <= MOST and value & (value - 1) == 0)
OWN, HALF, WHOLE = "own", "half", "whole"  # rows of the trained length, half the longest length, the longest length


class TunedMethod(NamedTuple):
    """A schedule, and what texts beyond the trained length are read under besides.

    {half} and {longest} in its line are those lengths in trained lengths. Shorter rows have as many tokens a step.
    """

    line: str
    beyond: str = ""
    rows: str = WHOLE
    untrained: bool = True
    trained: bool = True
    weights_of: str = ""  # the method that trains its weights, where another one reads them too

    def at(self, longest: int) -> TunedMethod:
        """With the lengths of a table in its line."""
        return self._replace(line=self.line.format(half=longest // 2, longest=longest))

    @property
    def read_under(self) -> str:
        """What the base model is read under."""
        return f"{self.line}+{self.beyond}" if self.beyond else self.line

    def shorter(self, longest: int) -> int:
        """By how much its rows are shorter than the longest length."""
        return {WHOLE: 1, HALF: 2, OWN: longest}[self.rows]


METHODS: Mapping[str, TunedMethod] = {
    "none": TunedMethod("rope"),
    "pi": TunedMethod("pi"),
    "ntk": TunedMethod("ntk"),
    "yarn": TunedMethod("yarn"),
    "abf": TunedMethod("abf:new_base=500000"),
    "dynamic": TunedMethod("dynamic_ntk"),
    "drope": TunedMethod("nope", "log_n", rows=OWN),
    "short": TunedMethod("rope", rows=OWN, untrained=False),  # a control: what the texts alone teach
    "dynamic_yarn": TunedMethod("dynamic_yarn", trained=False),
    "yarn_4x": TunedMethod("yarn:factor=4", trained=False),
    "base": TunedMethod("rope", trained=False),
    "pi_half": TunedMethod("pi:factor={half}", rows=HALF),
    "ntk_half": TunedMethod("ntk:factor={half}", rows=HALF),
    "yarn_half": TunedMethod("yarn:factor={half}", rows=HALF),
    "yarn_half_dynamic": TunedMethod(
        "yarn:factor={half}", "dynamic_yarn", rows=HALF, untrained=False, weights_of="yarn_half"
    ),
    "yarn_beyond": TunedMethod("yarn:factor={longest}", rows=HALF),  # read at twice the length of its rows
    "xpos_abf": TunedMethod("xpos:new_base=500000"),
    "abf_half": TunedMethod("abf:new_base=500000", rows=HALF, untrained=False),
    "abf_short": TunedMethod("abf:new_base=500000", rows=OWN, untrained=False),
}
FARTHER = ("base", "pi_half", "ntk_half", "yarn_half", "yarn_half_dynamic", "yarn_beyond")  # for a table of its own
BY_DEFAULT = ",".join(name for name in METHODS if name not in (*FARTHER, *OF_LLAMA_LONG))


@dataclass(frozen=True, kw_only=True)
class TunedSettings(RecipeSettings):
    """Which model is trained further, under which schedules, and what it is measured on."""

    model: Model = "default"
    methods: Annotated[str, "names, separated by commas"] = BY_DEFAULT
    seeds: Annotated[int, AT_LEAST_ONE, "models of each method and budget"] = 3
    longest: Annotated[int, A_TABLE, "trained lengths of the longest texts, and of most methods' rows"] = LONGEST
    texts: Annotated[int, AT_LEAST_ONE, "held-out texts of the longest length"] = 24
    passkeys: Annotated[int, AT_LEAST_ONE, "passkeys for each length"] = 12
    corpus: Corpus = "python"
    characters: Characters = 20_000_000
    puzzles: PuzzleShares = NO_PUZZLES

    plan_defaults: ClassVar[Mapping[str, Any]] = {**GENTLE, "steps": 1000, "rows": 2}
    costly: ClassVar[tuple[str, ...]] = (PLAN, f"{MEASURED}/*{PACKED}")
    changeable: ClassVar[tuple[str, ...]] = ("methods", "seeds", *LONGER)


class TunedRun(NamedTuple):
    """One model of the table."""

    method: str
    steps: int
    seed: int

    @property
    def name(self) -> str:
        """Of its folder and of its file."""
        return f"{self.method}-{self.steps}-{self.seed}"


def tuned(out: str | Path, settings: TunedSettings) -> Path:
    """Measure a model under each schedule without training, after a fifth of the steps, and after all of them.

    Rows have the longest length (`longest`), for some methods half of it or the trained length. Every finished model
    and every measurement is kept: the same call resumes. Results are tuned.json and tuned.md.
    """
    folder, names = Path(out), named_methods(settings.methods, METHODS, "tuned")
    require_held_out(settings.corpus)
    subject = _subject(settings, folder)
    _require_same_base(folder, subject)
    length = trained_len(subject.model)
    for run in _runs(settings, names):
        file = measured_file(folder, run.name)
        if not file.is_file():
            figures = _one(folder, run, settings, subject, length)
            if figures is None:  # a signal came
                return folder
            training = training_record(folder / "models" / run.name)
            write_measured(file, {**run._asdict(), "made": provenance(), "figures": figures, **training})
            _report(folder, settings, subject.projects(settings.texts), length)
    _report(folder, settings, subject.projects(settings.texts), length)  # again: the claims may have changed
    return folder / "tuned.md"


def _runs(settings: TunedSettings, names: list[str]) -> Iterator[TunedRun]:
    """The base model under every schedule first; then seed by seed, so that a table that is cut off is a whole one."""
    plan = settings.plan
    yield from (TunedRun(name, 0, plan.seed) for name in names if METHODS[name].untrained)
    for seed in range(plan.seed, plan.seed + settings.seeds):
        for steps in sorted({max(1, plan.steps // FEW), plan.steps}):
            yield from (TunedRun(name, steps, seed) for name in names if METHODS[name].trained)


def _subject(settings: TunedSettings, folder: Path) -> Subject:
    """The base model with everything that all models are measured on."""
    model, tokenizer = checkpoint(settings.model, folder)
    longest, count = settings.longest * trained_len(model), max(settings.texts, FILLERS)
    subject = Subject(model=model, tokenizer=tokenizer, corpus=settings.corpus, longest=longest)

    def choose() -> HeldOutTexts:
        return HeldOutTexts(torch.stack(subject.passages(count)), tuple(subject.projects(count)))

    return subject.reading(held_out_in(folder, count=count, length=longest, choose=choose))


def _require_same_base(folder: Path, subject: Subject) -> None:
    """Refuse other weights than a table began with: a folder of the same name may hold another model by now."""
    stored, now = folder / "base.json", marks_of(subject.model, subject.tokenizer)
    others = changed_settings(stored, now)
    remedy = "bring back {} that the table was begun with, or begin in another folder"
    if others:
        sentence = f"{folder} has measurements of another model: its {', '.join(others)} differ"
        raise Conflict.because("model", sentence, remedy=remedy.format("the model"))
    if not stored.is_file():
        if any((folder / MEASURED).glob(f"*{PACKED}")):
            sentence = f"{folder} has measurements, and no {stored.name} that says of which model"
            raise Conflict.because("model", sentence, remedy=remedy.format("the file"))
        write_whole(stored, json.dumps(now, indent=1) + "\n")


def _one(
    folder: Path, run: TunedRun, settings: TunedSettings, subject: Subject, length: int
) -> list[dict[str, Any]] | None:
    """The figures of one model, which is trained first if it is to be; None where training was stopped."""
    method = METHODS[run.method].at(settings.longest)
    measure = partial(_measured, settings=settings, length=length)
    if run.steps == 0:
        with extended(subject.model, method.read_under, target_len=subject.longest):
            return measure(subject)
    run = run._replace(method=method.weights_of or run.method)
    place = folder / "models" / run.name
    if not finished(place, lambda: _train(place, run, settings, subject.longest, shared=folder)):
        return None
    model = load(place / "model", dtype=torch.float32)
    if method.beyond:
        extend(model, method.beyond, target_len=subject.longest)
    return measure(replace(subject, model=model))


def _train(place: Path, run: TunedRun, settings: TunedSettings, longest: int, *, shared: Path) -> PreTrainedModel:
    """One model, by the recipe that anyone would use."""
    method, plan = METHODS[run.method].at(settings.longest), replace(settings.plan, steps=run.steps, seed=run.seed)
    read = {name: getattr(settings, name) for name in ("model", "corpus", "characters", "puzzles")}
    shorter = method.shorter(settings.longest)
    plan, longest = replace(plan, rows=shorter * plan.rows), longest // shorter
    if method.line == "nope":
        plan = replace(plan, **DroPESettings.plan_defaults)  # its source's
        return drope(place, DroPESettings(plan=plan, **read), shared=shared)
    return carry_on(place, CarryOnSettings(plan=plan, extension=method.line, length=longest, **read), shared=shared)


def _measured(subject: Subject, *, settings: TunedSettings, length: int) -> list[dict[str, Any]]:
    """At each length: the loss of the last half trained length of every text, and which passkeys are found."""
    task, rows = Passkey(samples=settings.passkeys), []
    passages = subject.passages(settings.texts)
    for times in lengths_to(settings.longest):
        texts = torch.stack([subject.begun(passage, times * length) for passage in passages])
        losses = token_losses(subject.model, texts).losses_bn[:, -length // 2 :]
        keys = _passkeys(subject, task, times * length)
        rows.append({"times": times, "losses": losses.double().mean(1).tolist(), "passkeys": keys})
    return rows


def training_record(place: Path) -> dict[str, Any]:
    """What was logged while a model was trained: steps, losses, norms of gradients. Nothing of what was not trained."""
    path = place / LOGGED
    if not path.is_file():
        return {}
    return {
        "training": {name: [row[name] for row in read_record(path, "a log of a training")["rows"]] for name in SHOWN}
    }


def lengths_to(longest: int) -> list[int]:
    """1, 2, 4 and so on, up to the longest, in trained lengths."""
    return [2**power for power in range(longest.bit_length())]


def _passkeys(subject: Subject, task: Passkey, length: int) -> list[bool]:
    """Which are found; none is asked for in a text that is too short for the question."""
    try:
        task.require(subject, [length])
    except DoesNotFit:
        return []
    return [task.measure(subject, length, sample)["right"] for sample in range(task.samples)]


def _report(folder: Path, settings: TunedSettings, projects: Sequence[str], length: int) -> None:
    """Write everything that is measured so far, as one JSON file and as a page."""
    material = {name: getattr(settings, name) for name in ("model", "corpus", "characters", "texts", "passkeys")}
    results = {
        "ropewalk": version("ropewalk"),
        "torch": torch.__version__,
        "plan": {name: value for name, value in asdict(settings.plan).items() if name not in NOT_OF_THE_TABLE},
        "trained_len": length,
        "longest": settings.longest,
        "read": {**material, "puzzles": settings.puzzles.shares()},
        "projects": list(projects),
        "models": measured_in(folder),
    }
    judged_claims = verdicts(results)
    write_whole(folder / "tuned.json", json.dumps(results, indent=1) + "\n")
    write_whole(folder / "tuned.md", tuned_page(results, judged_claims))
