"""All recipes by name, with the settings they take: what `ropewalk train` runs and lists."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.errors import Conflict, InvalidValue, RopewalkError, UnknownName
from ropewalk.folders import write_whole
from ropewalk.lab.recipes import settings
from ropewalk.lab.recipes.carry_on import carry_on
from ropewalk.lab.recipes.long_instruct import QUESTIONS, long_instruct
from ropewalk.lab.recipes.pretrain import PUZZLES, pretrain
from ropewalk.lab.recipes.uptrain_gqa import uptrain_gqa
from ropewalk.lab.recipes.zoo import PUZZLES as REPEATS
from ropewalk.lab.recipes.zoo import zoo
from ropewalk.lab.small_models import ModelShape
from ropewalk.lab.training.checkpoints import changed, steps_done
from ropewalk.lab.training.processes import together
from ropewalk.lab.training.train import LONGER, PLAN, WATCHING, TrainingPlan
from ropewalk.notation import value
from ropewalk.record import Checked, Parameter, ParameterRow, parameter_rows, parameters, written

RECIPE = "recipe.json"
BEGUN = (PLAN, QUESTIONS)  # what a run leaves that has cost something
SMALL_STEPS = {"rows": 4, "learning_rate": 1.5e-3}  # they bring retrieval sooner than large ones
GENTLE = {"learning_rate": 2e-4}  # for weights that know something
# One model of the zoo, 3 M tokens, takes three minutes of one core: few pieces, short rows and many repeats, so that
# a model as small as this learns to look back at all (docs/log.md).
SMALL = {
    **{"steps": 3000, "rows": 16, "learning_rate": 3e-3, "save_every": 500, "log_every": 100},
    **{"vocabulary": 320, "width": 96, "inner": 256, "layers": 3, "trained_len": 64, "characters": 20_000_000},
    **REPEATS,
}


class Recipe(NamedTuple):
    """A function with the records it is told by, and the defaults it has otherwise than they."""

    run: Callable[..., object]
    records: tuple[type[Checked], ...]
    defaults: Mapping[str, Any] = {}
    free: tuple[str, ...] = LONGER  # settings that may be others when a run goes on

    @property
    def name(self) -> str:
        """The function's."""
        return self.run.__name__

    @property
    def idea(self) -> str:
        """The first paragraph of the function's docstring."""
        return " ".join((self.run.__doc__ or "").split("\n\n")[0].split())

    def rows(self) -> list[ParameterRow]:
        """Every setting in words."""
        found = [row for record in self.records for row in parameter_rows(record)]
        own = {name: written(default) for name, default in self.defaults.items()}
        return [row._replace(default=own.get(row.name, row.default)) for row in found]

    def arguments(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The function's arguments: records as they are where it takes them, else their fields."""
        known = [parameter.name for record in self.records for parameter in parameters(record)]
        for name in given:
            if name not in known:
                raise UnknownName("setting", name, known=known, owner=self.name)
        made = [self._record(record, given) for record in self.records]
        return {name: each for record in made for name, each in _spread(record).items()}

    def _record(self, record: type[Checked], given: Mapping[str, str]) -> Checked:
        values = {}
        for parameter in parameters(record):
            if parameter.name in given:
                values[parameter.name] = _read(parameter, given[parameter.name])
            elif parameter.name in self.defaults:
                values[parameter.name] = self.defaults[parameter.name]
            elif parameter.default is dataclasses.MISSING:
                remedy = f"say --set {parameter.name}=... ({parameter.meaning})"
                raise InvalidValue(parameter.name, "given", None, remedy=remedy)
        return record(**values)


def _read(parameter: Parameter, text: str) -> Any:
    return text if parameter.kind.startswith(("text", "'")) else value(text)


def _spread(record: Checked) -> dict[str, Any]:
    fields = dataclasses.asdict(record)
    if isinstance(record, settings.Puzzles):
        return {"puzzles": {name: share for name, share in fields.items() if share}}
    whole = {TrainingPlan: "plan", ModelShape: "shape"}
    return {whole[type(record)]: record} if type(record) in whole else fields


ALL = (
    Recipe(pretrain, (settings.Pretrain, TrainingPlan, ModelShape, settings.Puzzles), {**PUZZLES, **SMALL_STEPS}),
    Recipe(carry_on, (settings.CarryOn, TrainingPlan, settings.Puzzles), GENTLE),
    Recipe(uptrain_gqa, (settings.UptrainGQA, TrainingPlan, settings.Puzzles), GENTLE),
    Recipe(long_instruct, (settings.LongInstruct, TrainingPlan), GENTLE),
    Recipe(zoo, (settings.Zoo, TrainingPlan, ModelShape, settings.Puzzles), SMALL, ("methods", "seeds", *WATCHING)),
)


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    found = {each.name: each for each in ALL}
    if name not in found:
        raise UnknownName("recipe", name, known=found)
    return found[name]


def run(name: str, out: str | Path, given: Mapping[str, str]) -> Path | None:
    """Run a recipe, or go on with it, with the settings that it began with: where its result is, or nothing where a
    signal came first."""
    chosen = recipe(name)
    arguments = chosen.arguments(given)
    kept = {each: setting for each, setting in _plain(arguments).items() if each not in chosen.free}
    plan = arguments.pop("plan")
    if not plan.progress:
        _hide_bars()
    with _as_before(Path(out)):
        _require_same(Path(out), {"recipe": name, **kept})
        result = chosen.run(out, plan, **arguments)
    if isinstance(result, Path):
        return None if result == Path(out) else result
    together()  # the last checkpoint is written by one for all
    return Path(out) / "model" if steps_done(out) >= plan.steps else None


@contextmanager
def _as_before(out: Path) -> Iterator[None]:
    """A run that is refused before its training begins leaves the folder as it was: its settings bind nobody."""
    before = set(out.iterdir()) if out.is_dir() else None
    try:
        yield
    except RopewalkError:
        if not any(any(out.rglob(name)) for name in BEGUN):
            for made in [out] if before is None else set(out.iterdir()) - before:
                shutil.rmtree(made, ignore_errors=True) if made.is_dir() else made.unlink(missing_ok=True)
        raise


def _hide_bars() -> None:
    """Those of loading, tokenising and writing too."""
    from datasets import disable_progress_bars
    from transformers.utils import logging

    disable_progress_bars()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Settings one by one."""
    flat: dict[str, Any] = {}
    for name, each in arguments.items():
        flat |= dataclasses.asdict(each) if isinstance(each, Checked) else {name: each}
    return flat


def _require_same(out: Path, now: Mapping[str, Any]) -> None:
    """Refuse other settings than a run began with, and a folder with somebody's model."""
    stored = out / RECIPE
    if not stored.is_file() and (out / "model").exists():
        raise InvalidValue("out", "new, or where a recipe was begun", str(out), remedy="it holds a model already")
    others = changed(stored, now)
    if others:
        remedy = "name another folder"
        raise Conflict("settings", f"as they were when {out} began", ", ".join(others), remedy=remedy)
    if not stored.is_file():
        write_whole(stored, json.dumps(now, indent=2) + "\n")
