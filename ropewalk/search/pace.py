"""What a search has time for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch

from ropewalk.errors import DoesNotFit
from ropewalk.extension.notation import minutes
from ropewalk.hf.probe.facts import trained_len
from ropewalk.hf.use.inspect import sizes
from ropewalk.measure.comparison.halving import rounds
from ropewalk.measure.comparison.plan import Cost, calibrated_in_fastest, calibration_text, in_precision, size_in_words
from ropewalk.measure.opened_model import OpenedModel
from ropewalk.search.final_test import EXTENDED
from ropewalk.search.fitting import BESIDE_ELSEWHERE
from ropewalk.search.studies import KEPT_ONE_IN

# What a search has time for: how long its texts are, how many it reads, and how many test the answer.
#
#     search(e) = 1.3 e text (c_1 + (c_2 - c_1) / 3 + (c_3 - c_2) / 9),   the rungs c read so many texts
#     test      = judges (text + short) (1 + 1.3 (1 + most)) + 3 judges text,   the last term on another corpus
#
# `text` and `short` are the seconds in which the base model reads a text of the lengths that count, and of the trained
# one. Of all extensions a third goes on from rung to rung.


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


# What a search will do, said before it: how long its texts are, how many it reads, and how long that takes.


SO_MANY = 1000  # extensions, of which nobody needs to know how many


@dataclass(frozen=True, kw_only=True)
class Planning:
    """A search before it begins."""

    host: OpenedModel
    pace: Pace
    deadline: float  # by time.monotonic()
    lengths: tuple[int, ...]  # shorter ones that count too
    workers: int
    judge_on: str
    free_precision: bool  # whether a faster one may be chosen
    before: Mapping[str, str]  # the marks of the same search when it was begun; it goes on with those numbers

    def plan(self, target_len: int | None, samples: int | None, judges: int | None) -> SearchPlan:
        """What was asked for, then what the search was begun with, then what there is time for."""
        known = trained_len(self.host.model)
        if target_len is not None and target_len <= known:
            raise DoesNotFit("target_len", f"above the trained length ({known})", target_len)
        of_model = self._calibrated(known)
        cost = SearchCost(of_model, known, self.lengths, self.workers, elsewhere=bool(self.judge_on))
        asked = {"target_len": target_len, "samples": samples, "judges": judges}
        begun = {name: int(self.before[name]) for name in asked if name in self.before}
        wanted = {name: value or begun.get(name) for name, value in asked.items()}
        return plan_search(cost, self.pace, self.deadline - time.monotonic(), **wanted)

    def _calibrated(self, known: int) -> Cost:
        """The cost of the model here, in the precision that the search was begun in, or in the faster one."""
        model, ids = self.host.model, calibration_text(self.host.tokenizer, known)
        free = self.free_precision
        if free and (name := self.before.get("dtype")):
            in_precision(model, getattr(torch, name.removeprefix("torch.")))
            free = False
        return calibrated_in_fastest(model, sizes(model), ids, free=free, workers=1)

    def sentences(self, plan: SearchPlan, corpus: str) -> Iterator[str]:
        """The plan in words."""
        model, known = self.host.model, trained_len(self.host.model)
        samples, judges, _ = plan.texts
        yield f"{size_in_words(model)}, {corpus} texts"
        times = f"{plan.target_len:,} tokens, {plan.target_len / known:g} times the trained length"
        yield f"plan: {times}; {samples} texts to search on, {judges} others for the test"
        tried = f"about {plan.extensions:.0f}" if plan.extensions < SO_MANY else f"over {SO_MANY:,}"
        many = f"time to try {tried} extensions" if plan.extensions >= 1 else "the budget leaves no time to search"
        yield f"the base model reads a text in about {minutes(plan.text)}; {many}; the test takes {minutes(plan.test)}"
