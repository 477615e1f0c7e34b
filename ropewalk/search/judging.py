"""The answer, judged on texts that the search never saw, beside everything that was set by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ropewalk.evaluation.metrics.intervals import Estimate, difference
from ropewalk.extension import Extension
from ropewalk.notation import BARE
from ropewalk.search.goal import Goal
from ropewalk.search.objective import OnTexts
from ropewalk.search.proposing import Takes, made
from ropewalk.search.spaces import HandSet
from ropewalk.search.tried import MeasuredTrial
from ropewalk.spec import Json

DEAR = 1.3  # times the bare model's seconds that an extension takes, at a guess


@dataclass(frozen=True, kw_only=True)
class TestedExtension:
    """One extension on the texts that were held back."""

    line: str
    extension: Extension
    loss: Estimate
    behind: Estimate  # its loss less the answer's, on the same texts: above 0, the answer is better
    damage: Estimate
    slowdown: float
    keys: Estimate | None  # pass keys found, where the goal asks for them

    @property
    def surely_better(self) -> bool:
        """Than the answer."""
        return self.behind.high < 0


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What a search has come to."""

    goal: Goal
    chosen: MeasuredTrial
    answer: TestedExtension
    beside: tuple[TestedExtension, ...]  # the bare model first
    history: tuple[MeasuredTrial, ...]
    marks: Mapping[str, str]
    made: Json
    own: Extension = field(default_factory=Extension)  # that the model was trained under
    budget: float | None = None  # seconds of everything, where there was a limit
    untried: int = 0  # of what is set by hand, so many the search had no time to measure

    @property
    def rival(self) -> TestedExtension | None:
        """The best of what was set by hand, on these very texts: the hardest to beat."""
        by_hand = [each for each in self.beside if each.line != BARE]
        return min(by_hand, key=lambda each: each.behind.value, default=None)

    @property
    def written(self) -> TestedExtension:
        """What to load: the answer, unless one that was set by hand is surely better on texts that nobody has seen."""
        rival = self.rival
        return rival if rival and rival.surely_better else self.answer

    @property
    def advised(self) -> Extension:
        """The same, with what the model was trained under where it says nothing."""
        return self.written.extension.over(self.own)


def lines(goal: Goal, takes: Takes, found: Sequence[MeasuredTrial], most: int | None = None) -> dict[str, Extension]:
    """What was set by hand and keeps to the class, the best on the fitting texts first; at most so many."""
    space = HandSet()
    fitted = {each.extension: _rank(each) for each in found}
    pairs = [(values["line"], made(space, goal, values)) for values in space.seeds(goal)]
    fitting = [(line, each) for line, each in pairs if each is not None and takes(each)]
    unknown = (1, 0.0, 0.0)
    return dict(sorted(fitting, key=lambda pair: fitted.get(pair[1], unknown))[:most])


def _rank(each: MeasuredTrial) -> tuple[int, float, float]:
    """Who got further comes first, then who lost less."""
    last = max(each.rungs)
    return 0, -last, each.rungs[last]


def tested(on: OnTexts, line: str, extension: Extension, answer: Extension) -> TestedExtension:
    """One extension, beside the answer and the bare model."""
    mine, theirs, bare = (on.long(each) for each in (extension, answer, Extension()))
    losses = [[sample["loss"] for sample in row.samples] for row in (mine, theirs)]
    return TestedExtension(
        line=line,
        extension=extension,
        loss=mine.numbers["loss"],
        behind=difference(*losses),
        damage=difference(on.short_losses(extension), on.short_losses(Extension())),
        slowdown=mine.seconds / bare.seconds,
        keys=None if on.goal.min_retrieval is None else on.keys(extension).numbers["right"],
    )


def reserve(goal: Goal, seconds: float, count: float, workers: int) -> float:
    """Seconds that judging the answer, the bare model and so many others will take.

    `seconds` is what the bare model took for the texts that are fitted on.
    """
    whole = seconds * goal.judges / goal.samples * (1 + goal.facts.trained_len / goal.target_len)
    return whole * (1 + DEAR * (2 + count / workers))


def name_of(chosen: MeasuredTrial) -> str:
    """What to call it: its line where it has one, else where it was found."""
    return str(chosen.values["line"]) if chosen.space == HandSet.name else f"{chosen.space} #{chosen.number}"
