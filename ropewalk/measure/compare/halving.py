"""Successive halving: all candidates read a few texts, those that are surely behind stop, and the rest read more.

    behind(a, b) = mean over texts of loss_a(text) - loss_b(text),   a stops where the interval of behind(a, b) is above
    MAX_GAP for a rival b that is no worse in all else

Texts differ more than extensions do, so differences are taken text by text. With few texts the interval is wide, and
little is dropped.

Source: Jamieson & Talwalkar 2016, arXiv:1502.07943. Deviation: they drop a fixed share in each round, by means alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, difference, groups_of

MAX_GAP = 0.05  # nats per token behind the best on the same texts


class Standing(NamedTuple):
    """What decides about one candidate in a round."""

    line: str
    losses: tuple[float, ...]  # at the target length, text by text; empty where it ran out of memory
    rivals: tuple[str, ...] = ()  # the candidates that are no worse in all but the loss
    projects: tuple[str, ...] = ()  # of the texts, where they are known; texts of one are alike

    @property
    def measured(self) -> bool:
        """Whether there is a loss for every text; one that is NaN or infinite cannot be compared."""
        return bool(self.losses) and all(map(math.isfinite, self.losses))


class Dropped(NamedTuple):
    """A candidate that stopped, and why."""

    line: str
    round: int  # counted from 1
    texts: int  # that it read
    loss: float
    rival: str
    behind: Estimate  # its loss minus the rival's, on the same texts
    threshold: float


def rounds(texts: int, least: int = 1) -> list[int]:
    """How many texts have been read when each round ends: an eighth, a third, all; at least `least`."""
    return sorted({min(texts, max(least, texts // parts)) for parts in (8, 3, 1)})


def hopeless(standings: Sequence[Standing], number: int) -> list[Dropped]:
    """The candidates that are surely behind a rival after a round of this number."""
    measured = {standing.line: standing for standing in standings if standing.measured}
    judged = [_judge(standing, measured, number) for standing in measured.values()]
    return [dropped for dropped in judged if dropped is not None and dropped.behind.low > MAX_GAP]


def _judge(standing: Standing, measured: dict[str, Standing], number: int) -> Dropped | None:
    """A candidate beside the best of its rivals; None where it has none."""
    rivals = [measured[line] for line in standing.rivals if line in measured]
    if not rivals:
        return None
    best = min(rivals, key=lambda rival: sum(rival.losses))
    behind = difference(standing.losses, best.losses, groups=groups_of(standing.projects))
    texts = len(standing.losses)
    loss = sum(standing.losses) / texts
    return Dropped(standing.line, number, texts, loss, best.line, behind, MAX_GAP)
