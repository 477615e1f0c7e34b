"""The final test: the answer beside all hand-set extensions, on texts that the search never saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE
from ropewalk.measure.comparison.runner import ResultRow
from ropewalk.measure.metrics.intervals import Estimate, difference
from ropewalk.methods.spec import Json
from ropewalk.search.goal import Goal, Measurements, worst_if_unknown
from ropewalk.search.objective import OnTexts, mean_loss, text_losses
from ropewalk.search.proposals import Takes, extension_of
from ropewalk.search.spaces import HandSet
from ropewalk.search.trials import MeasuredTrial

EXTENDED = 1.3  # estimated time of an extension, over that of the base model


class LengthTest(NamedTuple):
    """One extension at one of several lengths."""

    length: int
    loss: Estimate
    behind: Estimate  # its loss minus the answer's, on the same texts


@dataclass(frozen=True, kw_only=True)
class FinalTest:
    """One extension on the test texts."""

    line: str
    extension: Extension
    loss: Estimate
    behind: Estimate  # its loss minus the answer's, on the same texts: above 0, the answer is better
    damage: Estimate
    slowdown: float
    keys: Estimate | None  # passkeys found, where the goal asks for them
    by_length: tuple[LengthTest, ...] = ()  # where the goal has several

    @property
    def surely_better(self) -> bool:
        """Whether it is better than the answer beyond chance."""
        return self.behind.high < 0

    @property
    def has_loss(self) -> bool:
        """Whether its loss is a finite number, which can be compared."""
        return math.isfinite(self.loss.value)

    def keeps_to(self, goal: Goal) -> bool:
        """Whether it meets every condition on the test texts."""
        return not self.broken(goal)

    def broken(self, goal: Goal) -> list[str]:
        """The names of the conditions that it does not meet on the test texts."""
        retrieval = None if self.keys is None else self.keys.value
        figures = Measurements(self.loss.value, self.damage.value, self.slowdown, retrieval)
        return [name for name, excess in goal.violations(figures).items() if excess > 0]


class OtherCorpus(NamedTuple):
    """The final test on text of another kind: of the answer, the base model and the best hand-set extension."""

    corpus: str
    answer: FinalTest
    beside: tuple[FinalTest, ...]


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """The result of a search."""

    goal: Goal
    chosen: MeasuredTrial
    answer: FinalTest
    beside: tuple[FinalTest, ...]  # the base model first
    history: tuple[MeasuredTrial, ...]
    marks: Mapping[str, str]
    made: Json
    own: Extension = field(default_factory=Extension)  # the extension that the model was trained under
    budget: float | None = None  # seconds of the whole run, where it was limited
    untried: int = 0  # hand-set extensions that the search had no time to measure
    elsewhere: OtherCorpus | None = None  # where there is another corpus
    not_elsewhere: str = ""  # the other corpus, where it has too few texts

    @property
    def rival(self) -> FinalTest | None:
        """The best hand-set extension on the test texts that keeps to the goal: the hardest to beat."""
        by_hand = [
            other for other in self.beside if other.line != BARE and other.keeps_to(self.goal) and other.has_loss
        ]
        known = self.answer.has_loss  # else nothing is known to be behind it, by any number
        return min(by_hand, key=lambda other: other.behind.value if known else other.loss.value, default=None)

    @property
    def written(self) -> FinalTest:
        """What to load: the answer, unless a hand-set extension is surely better on the test texts.

        Or unless the answer breaks a condition there, which it met on the fitting texts, and a hand-set one does not.
        """
        rival, holds = self.rival, self.answer.has_loss and self.answer.keeps_to(self.goal)
        return rival if rival and (rival.surely_better or not holds) else self.answer

    @property
    def advised(self) -> Extension:
        """The same, over the extension that the model was trained under."""
        return self.written.extension.over(self.own)


def lines(goal: Goal, takes: Takes, trials: Sequence[MeasuredTrial], most: int | None = None) -> dict[str, Extension]:
    """Hand-set extensions that can be deployed, the best on the fitting texts first, at most `most`."""
    space = HandSet()
    fitted = {trial.extension: _rank(trial) for trial in trials}
    pairs = [(values["line"], extension_of(space, goal, values)) for values in space.seeds(goal)]
    fitting = [(line, extension) for line, extension in pairs if extension is not None and takes(extension)]
    unknown = (1, 0.0, 0.0)
    return dict(sorted(fitting, key=lambda pair: fitted.get(pair[1], unknown))[:most])


def _rank(trial: MeasuredTrial) -> tuple[int, float, float]:
    """Trials that got further come first, then those with the lower loss; NaN is the highest."""
    last = max(trial.rungs)
    return 0, -last, worst_if_unknown(trial.rungs[last])


def final_test(on: OnTexts, line: str, extension: Extension, answer: Extension) -> FinalTest:
    """Test one extension, beside the answer and the base model."""
    mine, theirs, base = on.rows(extension), on.rows(answer), on.long(Extension())
    tokens = [sample.get("tokens", on.goal.last) for sample in mine[-1].samples]
    return FinalTest(
        line=line,
        extension=extension,
        loss=mean_loss(mine),
        behind=difference(text_losses(mine), text_losses(theirs), weights=tokens, groups=on.groups),
        damage=difference(on.short_losses(extension), on.short_losses(Extension()), groups=on.groups),
        slowdown=mine[-1].times(base),
        keys=None if on.goal.min_retrieval is None else on.keys(extension).numbers["right"],
        by_length=_length_tests(mine, theirs, on.groups) if on.goal.lengths else (),
    )


def _length_tests(
    mine: Sequence[ResultRow], theirs: Sequence[ResultRow], groups: Sequence[str]
) -> tuple[LengthTest, ...]:
    tests = []
    for one, other in zip(mine, theirs, strict=True):
        behind = difference(text_losses([one]), text_losses([other]), groups=groups)
        tests.append(LengthTest(one.length, one.numbers["loss"], behind))
    return tuple(tests)


def reserve(goal: Goal, seconds: float, count: float, workers: int, times: float = EXTENDED) -> float:
    """Estimated seconds of the final test: the answer, the base model and `count` others.

    `seconds` is the time of the base model on the fitting texts; an extension takes so many `times` as long.
    """
    whole = seconds * goal.judges / goal.samples * (1 + goal.facts.trained_len / goal.target_len)
    return whole * (1 + times * (2 + count / workers))


def name_of(chosen: MeasuredTrial) -> str:
    """Its line where it has one, else its space and number."""
    return str(chosen.values["line"]) if chosen.space == HandSet.name else f"{chosen.space} #{chosen.number}"
