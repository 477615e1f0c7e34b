"""What a search has time for: how long its texts are, how many it reads, and how many test the answer.

    search(e) = 1.3 e text (c_1 + (c_2 - c_1) / 3 + (c_3 - c_2) / 9),   the rungs c read so many texts
    test      = judges (text + short) (1 + 1.3 (1 + most)) + 3 judges text,   the last term on another corpus

`text` and `short` are the seconds in which the base model reads a text of the lengths that count, and of the trained
one. Of all extensions a third goes on from rung to rung.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ropewalk.measure.compare.halving import rounds
from ropewalk.measure.compare.plan import Cost
from ropewalk.search.final_test import EXTENDED
from ropewalk.search.fitting import BESIDE_ELSEWHERE
from ropewalk.search.halving import KEPT_ONE_IN

ALL_BY_HAND = 12  # hand-set extensions, about, where their number is not limited
ENOUGH_EXTENSIONS = 24  # extensions that a search should have time for


class TextCounts(NamedTuple):
    """How many texts are read."""

    samples: int  # to search on
    judges: int  # others, for the final test
    most: int | None  # hand-set extensions that are tested beside the answer; nothing: all


@dataclass(frozen=True)
class Pace:
    """What holds where the caller says nothing, and there is the time for it."""

    budget: int  # seconds of the whole run
    texts: TextCounts
    times: tuple[int, ...]  # target lengths in trained lengths; a shorter one where there is no time for the first


FEWER = tuple(
    TextCounts(*few) for few in ((12, 16, 8), (8, 12, 6), (6, 8, 4), (4, 6, 3), (3, 3, 3), (2, 3, 2), (2, 2, 1))
)
FAIR = 6  # texts of a test; with fewer a shorter target is taken, where the caller left it open
USUAL, QUICK = Pace(1200, TextCounts(16, 24, None), (8, 4, 2)), Pace(90, TextCounts(3, 3, 3), (4, 2))


class SearchPlan(NamedTuple):
    """What is done, and about how long it takes."""

    target_len: int
    texts: TextCounts
    text: float  # seconds of a text, at all lengths that count
    test: float  # seconds of the final test
    extensions: float  # that the search has time for


class SearchCost(NamedTuple):
    """What a model costs here, and what is read beside the target length."""

    of_model: Cost
    trained_len: int
    lengths: tuple[int, ...]  # shorter ones that count too
    workers: int
    elsewhere: bool  # whether the answer is tested on another corpus too

    def plan(self, target_len: int, texts: TextCounts, seconds: float) -> SearchPlan:
        """What so many seconds suffice for."""
        text = sum(self.of_model.seconds(length) for length in (*self.lengths, target_len))
        short = self.of_model.seconds(self.trained_len)
        by_hand = ALL_BY_HAND if texts.most is None else texts.most
        test = texts.judges * (text + short) * (1 + EXTENDED * (1 + by_hand / self.workers))
        test += BESIDE_ELSEWHERE * texts.judges * text * self.elsewhere
        counts = [0, *rounds(texts.samples)]
        shares = [(after - before) / KEPT_ONE_IN**rung for rung, (before, after) in enumerate(pairwise(counts))]
        left = seconds - test - texts.samples * (text + short)  # the base model reads all
        extensions = self.workers * max(0.0, left) / (EXTENDED * text * sum(shares))
        return SearchPlan(target_len, texts, text, test, extensions)


def plan_search(
    cost: SearchCost, pace: Pace, seconds: float, target_len: int | None, samples: int | None, judges: int | None
) -> SearchPlan:
    """What was asked for as it is, and of the rest the most that there is time for; the least where there is none."""
    steps = [texts for texts in (pace.texts, *FEWER) if texts.judges <= pace.texts.judges]
    steps = [TextCounts(samples or texts.samples, judges or texts.judges, texts.most) for texts in steps]
    targets: Sequence[int] = [target_len] if target_len else [times * cost.trained_len for times in pace.times]
    for target in targets:
        fewest = min(FAIR, pace.texts.judges) if target != targets[-1] else 1
        for texts in steps:
            plan = cost.plan(target, texts, seconds)
            if plan.extensions >= ENOUGH_EXTENSIONS and texts.judges >= fewest:
                return plan
    return cost.plan(targets[-1], steps[-1], seconds)
