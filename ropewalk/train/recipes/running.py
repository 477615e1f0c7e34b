"""Running a recipe in a folder, and resuming it there with the settings that it began with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ropewalk.errors import Conflict, InvalidValue, RopewalkError
from ropewalk.folders import write_whole
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.train.checkpoints import changed_settings, steps_done
from ropewalk.train.processes import alone_in, wait_for_all
from ropewalk.train.recipes.recipe import Recipe

RECIPE = "recipe.json"


def run(recipe: Recipe, out: str | Path, texts: Mapping[str, str], options: LoadOptions = UNSTATED) -> Path | None:
    """Run a recipe, or resume it: the path of its result, or None where a signal stopped it first.

    `options` say how the model is loaded that a recipe begins from.
    """
    how = _options_for(recipe, options)
    settings, folder = recipe.read(texts), Path(out)
    fixed = {name: value for name, value in settings.written().items() if name not in settings.changeable}
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
            "out", "new, or a folder where a recipe was begun", str(out), remedy="name another: it holds a model"
        )
    others = changed_settings(stored, now, defaults)
    if others:
        sentence = f"{out} began with other values of {', '.join(others)}"
        raise Conflict.because("settings", sentence, remedy="name another folder")
    if not stored.is_file():
        write_whole(stored, json.dumps(now, indent=2) + "\n")
