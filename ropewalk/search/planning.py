"""What a search will do, said before it: how long its texts are, how many it reads, and how long that takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from ropewalk.errors import DoesNotFit
from ropewalk.extension.notation import minutes
from ropewalk.hf.probe.facts import trained_len
from ropewalk.hf.use.inspect import sizes
from ropewalk.measure.api.loading import OpenedModel
from ropewalk.measure.api.precision import calibrated_in_fastest, calibration_text, in_precision, size_in_words
from ropewalk.measure.compare.plan import Cost
from ropewalk.search.pace import Pace, SearchCost, SearchPlan, plan_search

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
        model, tokenizer, _ = self.host
        ids = calibration_text(tokenizer, known)
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
        many = f"{tried} extensions" if plan.extensions >= 1 else "no time to search for more"
        yield f"the base model reads a text in about {minutes(plan.text)}; {many}, and a test of {minutes(plan.test)}"
