"""What a step of the benchmark is made of: cases, each of which is measured, kept and repeated on its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]


class Skipped(Exception):
    """A case that cannot run here; the message says why."""


class OutOfTime(Exception):
    """A case that had to stop; what it measured so far is kept."""

    def __init__(self, why: str, rows: Sequence[Row] = ()) -> None:
        super().__init__(why)
        self.rows = list(rows)


class Place(NamedTuple):
    """Where a case runs: `dry` means tiny shapes on the CPU, to find wrong names and shapes without a GPU."""

    device: str
    dry: bool

    def either(self, real: Any, dry: Any) -> Any:
        """A size for the GPU, or the one of a dry run."""
        return dry if self.dry else real


class Case(NamedTuple):
    """A part of a step. It is not begun when less than `seconds` are left; `run` gets the seconds that are left."""

    name: str
    seconds: float
    run: Callable[[float], list[Row]]


class Step(NamedTuple):
    """A module of this package with a function `cases(place)`, and its share of the time."""

    name: str
    seconds: float

    def cases(self, place: Place) -> list[Case]:
        """Its cases, in the order in which they are measured."""
        cases: list[Case] = importlib.import_module(f"gpu.{self.name}").cases(place)
        return cases


# What everything else rests on comes first: are the answers right?
STEPS = {
    step.name: step
    for step in (
        Step("tests", 170),
        Step("attention", 220),
        Step("decode", 25),
        Step("compiled", 55),
        Step("training", 40),
        Step("streaming", 35),
        Step("vllm", 20),
    )
}


def goal(figure: str, to_reach: float, *, higher: bool = False) -> Row:
    """The columns that say which figure of a row has a goal: at most `to_reach`, or at least."""
    return {"figure": figure, "to_reach": to_reach, "better": "higher" if higher else "lower"}
