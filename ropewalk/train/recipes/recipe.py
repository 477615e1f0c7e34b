"""A recipe, its options, and how it is run."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

from ropewalk.errors import Conflict, InvalidValue, RopewalkError, UnknownName
from ropewalk.extension.notation import value
from ropewalk.folders import write_whole
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.methods.record import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    Checked,
    Parameter,
    ParameterRow,
    parameter_rows,
    parameters,
    value_text as as_text,
)
from ropewalk.texts.corpora import require_source
from ropewalk.train.checkpoints import changed_settings, steps_done
from ropewalk.train.data.puzzles import PuzzleShares
from ropewalk.train.processes import alone_in, wait_for_all
from ropewalk.train.train import LONGER, PLAN, TrainingPlan

# What a recipe is: a function of a folder and one record of settings, which its own file defines.
#
#     def pretrain(out, settings: PretrainSettings) -> ...
#
# One that begins from a model has a third parameter, `options`: how that model is loaded.
#
# The record is made of others: the training plan, and where a recipe needs them a model shape and puzzles. The command
# line has all their fields on one level (`--set steps=2000 --set width=128`).


# Fields that several recipes have.
Corpus = Annotated[
    str,
    "python, stdlib, recent, descriptions, prose, folder:PATH, FILE.jsonl, FILE.parquet, hub:NAME:FIELD, or A+B",
]
Characters = Annotated[int, AT_LEAST_ONE, "maximum number of characters of the corpus"]
Model = Annotated[str, "a folder with a model and its tokenizer, a name on the hub, or default"]
Packed = Annotated[bool, "several documents in a row; false gives every row one passage"]
Rank = Annotated[int, NOT_NEGATIVE, "rank of LoRA adapters; 0 trains all weights"]


@dataclass(frozen=True, kw_only=True)
class RecipeSettings(Checked):
    """What every recipe takes; a recipe's own record adds its fields."""

    plan: TrainingPlan

    # Defaults of the plan on the command line, where they differ from TrainingPlan's.
    plan_defaults: ClassVar[Mapping[str, Any]] = {}
    # Settings that may change when a run is resumed.
    changeable: ClassVar[tuple[str, ...]] = LONGER
    # Files of a run that are worth keeping when it is refused later.
    costly: ClassVar[tuple[str, ...]] = (PLAN,)

    def written(self) -> dict[str, Any]:
        """All settings on one level, as recipe.json has them; puzzles are a record within it."""
        flat: dict[str, Any] = {}
        for name, setting in vars(self).items():
            if isinstance(setting, PuzzleShares):
                flat[name] = setting.shares()
            else:
                flat |= dataclasses.asdict(setting) if isinstance(setting, Checked) else {name: setting}
        return flat


class Recipe(NamedTuple):
    """A recipe's function with the type of its settings."""

    run: Callable[..., object]
    settings: type[RecipeSettings]
    loads_model: bool  # whether its function takes options of loading

    @classmethod
    def of(cls, function: Callable[..., object]) -> Recipe:
        """The recipe of a function: its parameter `settings` says what it takes."""
        hints = get_type_hints(function)
        return cls(function, hints["settings"], "options" in hints)

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
        return [
            row._replace(default=as_text(defaults[row.name])) if row.name in defaults else row
            for _, record, defaults in self._records()
            for row in parameter_rows(record)
            if row.name not in self._parts()
        ]

    def defaults(self) -> dict[str, Any]:
        """The value of every setting that has one, where a user gives none."""
        values = {
            parameter.name: changed.get(parameter.name, parameter.default)
            for _, record, changed in self._records()
            for parameter in parameters(record)
        }
        return {name: default for name, default in values.items() if default is not dataclasses.MISSING}

    def read(self, texts: Mapping[str, str]) -> RecipeSettings:
        """The settings from what `--set` was given."""
        known = [row.name for row in self.rows()]
        for name in texts:
            if name not in known:
                raise UnknownName("setting", name, known=known, owner=self.name)
        values: dict[str, Any] = {}
        for part, record, defaults in self._records():
            fields = {
                parameter.name: self._value(parameter, texts, defaults)
                for parameter in parameters(record)
                if parameter.name not in self._parts()
            }
            values |= {part: record(**fields)} if part else fields
        return self.settings(**values)

    def _parts(self) -> dict[str, Parameter]:
        """The fields that are records themselves, whose fields the command line has on one level with the others."""
        fields = parameters(self.settings)
        return {
            field.name: field for field in fields if isinstance(field.type, type) and issubclass(field.type, Checked)
        }

    def _records(self) -> Iterator[tuple[str, type[Checked], Mapping[str, Any]]]:
        """The record itself, under no name, then each of its parts; with the defaults that a recipe changes."""
        yield "", self.settings, {}
        for name, part in self._parts().items():
            if name == "plan":
                yield name, part.type, self.settings.plan_defaults
            else:
                yield name, part.type, {} if part.default is dataclasses.MISSING else vars(part.default)

    def _value(self, parameter: Parameter, texts: Mapping[str, str], defaults: Mapping[str, Any]) -> Any:
        if parameter.name in texts:
            return _parse(parameter, texts[parameter.name])
        default = defaults.get(parameter.name, parameter.default)
        if default is dataclasses.MISSING:
            remedy = f"pass --set {parameter.name}=... ({parameter.meaning})"
            raise InvalidValue.because(parameter.name, f"{self.name} needs {parameter.name}", remedy=remedy)
        return default


def _parse(parameter: Parameter, text: str) -> Any:
    return text if parameter.kind.startswith(("text", "'")) else value(text)


# Running a recipe in a folder, and resuming it there with the settings that it began with.


RECIPE = "recipe.json"


def run(recipe: Recipe, out: str | Path, texts: Mapping[str, str], options: LoadOptions = UNSTATED) -> Path | None:
    """Run a recipe, or resume it: the path of its result, or None where a signal stopped it first.

    Args:
        recipe: what is run.
        out: the folder of the run.
        texts: settings as they are written after `--set`, by name.
        options: how the model is loaded that a recipe begins from.
    """
    how = _options_for(recipe, options)
    settings, folder = recipe.read(texts), Path(out)
    written = settings.written()
    fixed = {name: value for name, value in written.items() if name not in settings.changeable}
    if "corpus" in written and not (folder / RECIPE).is_file():  # a run that was begun keeps its texts as tokens
        require_source(written["corpus"])
    if not settings.plan.progress:
        _hide_bars()
    with alone_in(folder), _undo_if_refused(folder, settings.costly):
        _require_same(folder, {"recipe": recipe.name, **fixed}, recipe.defaults())
        result = recipe.run(out, settings, **how)
    if isinstance(result, Path):
        return None if result == folder else result
    wait_for_all()  # the main process writes the last checkpoint
    return folder / "model" if steps_done(out) >= settings.plan.steps else None


def _options_for(recipe: Recipe, options: LoadOptions) -> dict[str, LoadOptions]:
    """What a recipe is told of loading; one that makes its own model loads none, and refuses options for that."""
    if recipe.loads_model:
        return {"options": options}
    for field in fields(options):
        if getattr(options, field.name) != field.default:
            option = f"--{field.name.replace('_', '-')}"
            sentence = f"{option} says how a model is loaded, and {recipe.name} makes a new one"
            raise InvalidValue.because(field.name, sentence, remedy=f"leave {option} out")
    return {}


@contextmanager
def _undo_if_refused(out: Path, costly: Sequence[str]) -> Iterator[None]:
    """A run that is refused before its training begins leaves the folder unchanged: its settings may change."""
    before = set(out.iterdir()) if out.is_dir() else None
    try:
        yield
    except RopewalkError:
        if not any(any(out.rglob(name)) for name in costly):
            for path in [out] if before is None else set(out.iterdir()) - before:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _hide_bars() -> None:
    """Those of loading, tokenising and writing too."""
    from datasets import disable_progress_bars
    from transformers.utils import logging

    disable_progress_bars()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _require_same(out: Path, now: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse settings that differ from those a run began with, and a folder with somebody's model."""
    stored = out / RECIPE
    if not stored.is_file() and (out / "model").exists():
        raise InvalidValue(
            "out", "new, or a folder where a recipe was begun", str(out), remedy="choose another: it holds a model"
        )
    others = changed_settings(stored, now, defaults)
    if others:
        sentence = f"{out} began with other values of {', '.join(others)}"
        raise Conflict.because("settings", sentence, remedy="choose another folder")
    if not stored.is_file():
        write_whole(stored, json.dumps(now, indent=2) + "\n")
