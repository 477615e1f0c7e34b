"""A divisor for every pair, free of its neighbours, found by following the slopes of the loss from the best so far.

Slopes of the fast pairs are hundreds of times those of the slow ones, and mostly noise: on one text they point one way,
on the next another. So each is shrunk by how uncertain its mean over the texts is, and divided by its mean square:

    step = -g * max(0, 1 - var(g) / (n g^2)) / (mean(g^2) + FLOOR),   g over n texts

the longest part made 1. This is a natural gradient with the empirical Fisher information's diagonal (Amari 1998) under
James and Stein's shrinkage. What it finds does not rise from fast pairs to slow ones, as `pairs` must: it is better for
that (docs/log.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import ClassVar

from optuna.distributions import BaseDistribution
from torch import Tensor

from ropewalk.extension import Extension
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.pairs import MOST, Pairs, read_genes, static_genes, values_of
from ropewalk.search.spaces.signature import Space, Values
from ropewalk.search.tried import MeasuredTrial, ranked

FLOOR = 1e-4  # nats per token and share, squared: slopes much below are no reason to move
LONGEST = 0.12  # share: the factor to this power; by eight, 1.28 times
HALVINGS = 4  # of the step, until it is given up
ALIKE = Pairs()  # whose genes and table these are


def direction(slopes: Tensor) -> list[float]:
    """Where to step, of slopes [texts, genes]; nothing where nothing is certain."""
    mean, square = slopes.mean(0), slopes.square().mean(0)
    certain = (1 - slopes.var(0) / len(slopes) / mean.square().clamp(min=1e-30)).clamp(min=0)
    step = -mean * certain / (square + FLOOR)
    most = float(step.abs().max())
    return (step / most).tolist() if most > 0 else []


class Descent(Space):
    """Static, and lowered by `export` to what engines read as longrope."""

    name: ClassVar[str] = "descent"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return ALIKE.knobs(goal)

    def example(self, goal: Goal) -> Values:
        return ALIKE.example(goal)

    def seeds(self, goal: Goal) -> list[Values]:
        """None: it begins with what others have found."""
        return []

    def extension(self, goal: Goal, values: Values) -> Extension:
        return ALIKE.extension(goal, values)

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Whatever is static."""
        return static_genes(goal, extension) is not None

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values | None:
        """A step from the best so far along its direction, half as long where the longer one was no better."""
        known = {each.extension for each in past}
        for leader in (each for each in ranked(past)[:1] if each.direction):
            for halving in range(HALVINGS):
                values = _stepped(goal, leader, LONGEST / 2**halving)
                if self.extension(goal, values) not in known:
                    return values
        return None


def _stepped(goal: Goal, leader: MeasuredTrial, length: float) -> Values:
    """The leader's genes, moved; the last is the temperature's logarithm."""
    shares, warmth = read_genes(goal, leader.extension)
    *steps, warmer = (length * step for step in leader.direction)
    moved = tuple(min(max(share + step, 0.0), MOST) for share, step in zip(shares, steps, strict=True))
    return values_of(goal, moved, warmth * math.exp(warmer))
