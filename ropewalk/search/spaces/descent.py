"""A free divisor for every pair, found by gradient descent on the loss from the best so far.

Gradients of the fast pairs are hundreds of times those of the slow ones, and mostly noise: their sign changes from text
to text. So each is shrunk by the uncertainty of its mean over the texts, and divided by its mean square:

    step = -g * max(0, 1 - var(g) / (n g^2)) / (mean(g^2) + SQUARE_FLOOR),   g over n texts

scaled to a largest component of 1. This is a natural gradient with the diagonal of the empirical Fisher information
(Amari 1998) under James-Stein shrinkage. Unlike in `pairs`, divisors need not rise from fast to slow pairs, which is
better (studies/log.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import ClassVar

from optuna.distributions import BaseDistribution
from torch import Tensor

from ropewalk.extension.extension import Extension
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.pairs import MOST_SHARE, Pairs, read_genes, static_genes, values_of
from ropewalk.search.spaces.space import Space, Values
from ropewalk.search.trials import MeasuredTrial, rank

SQUARE_FLOOR = 1e-4  # (nats per token and share) squared: gradients far below this cause no step
LARGEST_STEP = 0.12  # largest step in share, a power of the factor: for factor 8, 1.28 times
HALVINGS = 4  # of the step, before it is given up
ALIKE = Pairs()  # has the same genes and tables


def direction(slopes: Tensor) -> list[float]:
    """The step from gradients [texts, genes]; empty where all are uncertain."""
    mean, square = slopes.mean(0), slopes.square().mean(0)
    certain = (1 - slopes.var(0) / len(slopes) / mean.square().clamp(min=1e-30)).clamp(min=0)
    step = -mean * certain / (square + SQUARE_FLOOR)
    most = float(step.abs().max())
    return (step / most).tolist() if most > 0 else []


class Descent(Space):
    """Static; `export` writes it as the longrope type of engines."""

    name: ClassVar[str] = "descent"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return ALIKE.knobs(goal)

    def example(self, goal: Goal) -> Values:
        return ALIKE.example(goal)

    def seeds(self, goal: Goal) -> list[Values]:
        """None: it starts from the results of other spaces."""
        return []

    def extension(self, goal: Goal, values: Values) -> Extension:
        return ALIKE.extension(goal, values)

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Any static extension."""
        return static_genes(goal, extension) is not None

    def proposed(self, goal: Goal, past: Sequence[MeasuredTrial], random: Random) -> Values | None:
        """A step from the best so far along its direction, halved where the longer one was no better."""
        known = {trial.extension for trial in past}
        for leader in (trial for trial in rank(past)[:1] if trial.direction):
            for halving in range(HALVINGS):
                values = _step(goal, leader, LARGEST_STEP / 2**halving)
                if self.extension(goal, values) not in known:
                    return values
        return None


def _step(goal: Goal, leader: MeasuredTrial, length: float) -> Values:
    """The leader's genes, moved; the last is the temperature's logarithm."""
    shares, warmth = read_genes(goal, leader.extension)
    *steps, warmer = (length * step for step in leader.direction)
    moved = tuple(min(max(share + step, 0.0), MOST_SHARE) for share, step in zip(shares, steps, strict=True))
    return values_of(goal, moved, warmth * math.exp(warmer))
