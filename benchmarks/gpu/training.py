"""Steps of training of an extended model against the base model with sdpa, as benchmarks/training.py on a CPU.

A Llama of 8 layers, 1,024 wide, 16 heads of 64, 8,192 words, autocast to bfloat16; a step is a forward, a backward and
AdamW on 16,384 tokens.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

import ropewalk as rw

from gpu.case import Case, Place, Row, Skipped, goal
from gpu.timing import compared

TOKENS, WORDS = 16_384, 2048


class Job(NamedTuple):
    """Extensions to train at a length, and the goal for their speed relative to the base model's."""

    name: str
    length: int
    extensions: tuple[str, ...]
    to_reach: float | None = None


JOBS = (
    Job("schedules", 2048, ("yarn:factor=4", "dynamic_yarn"), 0.95),
    Job("windows", 8192, ("window:window=1024", "streaming:window=1024", "rerope:window=1024"), 1.0),
    Job("biases", 2048, ("alibi", "kerple")),
)
DRY = (Job("schedules", 16, ("dynamic_yarn",), 0.95),)


def cases(place: Place) -> list[Case]:
    """One case for each group of extensions."""
    return [
        Case(f"{job.name}, {job.length:,}", 14, functools.partial(measured, job, place))
        for job in place.either(JOBS, DRY)
    ]


def measured(job: Job, place: Place, left: float) -> list[Row]:
    """Steps of all models, in turns."""
    models = small_models()
    ids = torch.randint(1, WORDS, (max(1, place.either(TOKENS, 16) // job.length), job.length), device=place.device)
    runs = {name: stepping(models, job.length, name, ids, place) for name in ("base", *job.extensions)}
    rows = []
    for name, row in compared(runs, "base", place, seconds=min(10.0, left / 2)).items():
        if "median" in row:
            row |= {"speed": round(1 / row["median"], 3), "tokens/s": round(ids.numel() / row["milliseconds"] * 1e3)}
        needed = {} if job.to_reach is None or name == "base" else goal("speed", job.to_reach, higher=True)
        rows.append({"method": name, **row, **needed})
    return rows


def small_models() -> Any:
    """The package's small models, which need transformers."""
    if importlib.util.find_spec("transformers") is None:
        raise Skipped("transformers is not installed")
    try:
        importlib.import_module("ropewalk.hf.attach.extend")
        return importlib.import_module("ropewalk.train.small_models")
    except ImportError as error:
        raise Skipped(f"this transformers is not one that the package supports: {error}") from error


def stepping(models: Any, length: int, name: str, ids: torch.Tensor, place: Place) -> Callable[[], None]:
    """One step of a model that is made in the first call."""
    sizes = place.either(
        {"width": 1024, "inner": 4096, "layers": 8, "heads": 16}, {"width": 32, "inner": 32, "layers": 1, "heads": 2}
    )
    model = (
        models.new_small_model(models.ModelShape(vocabulary=WORDS, trained_len=length, **sizes))
        .to(place.device)
        .train()
    )
    model.config.use_cache = False
    if name != "base":
        rw.extend(model, name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with torch.autocast(place.device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
