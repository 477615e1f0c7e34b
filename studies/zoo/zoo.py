"""`zoo`: one small model under every trained-in method, with equal budgets, measured at 1x to 10x its length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ropewalk.errors import InvalidValue
from ropewalk.folders import write_whole
from ropewalk.measure.comparison.store import provenance
from ropewalk.measure.metrics.losses import HeldOutTexts, passages
from ropewalk.texts.corpora import documents
from ropewalk.train.recipes.pretrain import vocabulary_in

from studies.models_table import (
    finished,
    held_out_in,
    measured_file,
    measured_in,
    named_methods,
    require_held_out,
    write_measured,
)
from studies.zoo.claims import verdicts
from studies.zoo.measuring import TIMES, measured
from studies.zoo.methods import METHODS
from studies.zoo.settings import ZooSettings
from studies.zoo.training import place_of, require_trainable, train_method
from studies.zoo.zoo_page import zoo_page


def zoo(out: str | Path, settings: ZooSettings) -> Path:
    """Train the same small model under each trained-in method and measure it from 1x to 10x the trained length.

    Methods without training read the plain models. Every finished model and every measurement is kept: the same call
    resumes. Results are zoo.json and zoo.md.
    """
    folder, plan = Path(out), settings.plan
    asked = named_methods(settings.methods, METHODS, "the zoo")
    names = dict.fromkeys(one for name in asked for one in (METHODS[name].needs or name, name))
    require_held_out(settings.corpus)
    if settings.shape.places != "rotary":
        rule = "rotary; methods that need another kind change it themselves"
        raise InvalidValue("places", rule, settings.shape.places)
    for name in names:
        require_trainable(name, settings)
    held_out, projects = _held_out(folder, settings)
    for seed in range(plan.seed, plan.seed + settings.seeds):
        for name in names:
            file = measured_file(folder, f"{name}-{seed}")
            if not file.is_file():
                figures = _one(name, folder, replace(settings, plan=replace(plan, seed=seed)), held_out)
                if figures is None:  # a signal came
                    return folder
                write_measured(file, {**figures, "made": provenance()})
                _report(folder, settings, projects)
    _report(folder, settings, projects)  # again: the claims may have changed
    return folder / "zoo.md"


def _held_out(folder: Path, settings: ZooSettings) -> HeldOutTexts:
    """The texts that all models are measured on, of tokens of the vocabulary that all share."""
    count, length = settings.texts, max(TIMES) * settings.shape.trained_len

    def choose() -> HeldOutTexts:
        tokenizer = vocabulary_in(folder, settings.corpus, settings.shape.vocabulary)
        return passages(documents(settings.corpus, "held out"), tokenizer, length=length, count=count)

    return held_out_in(folder, count=count, length=length, choose=choose)


def _one(name: str, folder: Path, settings: ZooSettings, held_out: torch.Tensor) -> dict[str, Any] | None:
    """Train one model, unless it is finished already, and measure it; None where training was stopped."""
    method = METHODS[name]
    trained = method.of or name
    place = place_of(trained, folder, settings)
    if not finished(place, lambda: train_method(trained, folder, settings)):
        return None
    record = {"method": name, "seed": settings.plan.seed, "extension": method.line(settings.shape), "of": method.of}
    record["steps"] = METHODS[trained].budget * settings.plan.steps
    return {**record, **measured(place / "model", method, held_out, settings.shape)}


def _report(folder: Path, settings: ZooSettings, projects: Sequence[str]) -> None:
    """Write everything that is measured so far, as one JSON file and as a page."""
    material = {name: getattr(settings, name) for name in ("corpus", "characters", "texts")}
    results = {
        "ropewalk": version("ropewalk"),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "plan": {name: value for name, value in asdict(settings.plan).items() if name != "seed"},
        "shape": asdict(settings.shape),
        "read": {**material, "puzzles": settings.puzzles.shares()},
        "projects": list(projects),
        "models": measured_in(folder),
    }
    judged_claims = verdicts(results)
    write_whole(folder / "zoo.json", json.dumps(results, indent=1) + "\n")
    write_whole(folder / "zoo.md", zoo_page(results, judged_claims))
