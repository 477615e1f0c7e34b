"""Objectives whose optimum is known, so that a search can be judged without a model."""

from dataclasses import dataclass, field

import pytest
import torch

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Dynamic
from ropewalk.search import fitting, search_loop
from ropewalk.search.goal import Goal, Measurements
from ropewalk.search.spaces.pairs import genes, read_genes
from ropewalk.search.studies import open_study
from ropewalk.search.trials import finished_trials

FACTS = Facts(trained_len=32, head_dim=8, layers=3)
SHARES, WARMTH = (0.0, 0.3, 0.5, 1.1), 1.3  # the optimum among static schedules
COEFFICIENT = 0.21  # the optimum among dynamic ones
TRIALS = 15  # two more than what is set by hand


@pytest.fixture(autouse=True, scope="module")
def so_many_trials():
    """Counted in trials, since time would make it another search on another machine."""

    def counted(study, goal, objective, *, trials, watch, leads):
        return search_loop.search(study, goal, objective, trials=TRIALS, watch=watch, leads=leads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "search", counted)
        yield


def goal(**given):
    return Goal(facts=FACTS, target_len=256, samples=2, **given)


def is_static(extension):
    try:
        genes(goal(), extension)
    except DoesNotFit:
        return False
    return True


def is_dynamic(extension):
    return isinstance(extension.frequencies_or_rope, Dynamic)


def everything(extension):
    """All that a model of four pairs takes."""
    try:
        extension.check_against(FACTS)
    except DoesNotFit:
        return False
    return True


@dataclass
class Distance:
    """The square of how far a static schedule is from the optimum; short texts are harmed as pairs are slowed."""

    stop_at: int | None = None  # the call that is interrupted
    how: type[BaseException] = KeyboardInterrupt
    calls: list = field(default_factory=list)

    def loss(self, extension):
        shares, warmth = read_genes(goal(), extension)
        return sum((a - b) ** 2 for a, b in zip(shares, SHARES, strict=True)) + (warmth - WARMTH) ** 2

    def rungs(self, extension):
        for rough in (0.01, 0.0):
            self.calls.append(extension)
            if len(self.calls) == self.stop_at:
                raise self.how
            yield self.loss(extension) + rough

    def damage(self, extension):
        return sum(genes(goal(), extension)[0]) / 10

    def slopes(self, extension):
        """Of texts that scatter around the mean."""
        shares, warmth = read_genes(goal(), extension)
        found = [2 * (a - b) for a, b in zip(shares, SHARES, strict=True)] + [2 * (warmth - WARMTH) * warmth]
        scatter = torch.tensor([-1.0, 1.0] * 32, dtype=torch.float64)[:, None]
        return torch.tensor(found, dtype=torch.float64) + scatter

    def figures(self, extension):
        return Measurements(self.loss(extension), damage=self.damage(extension), slowdown=1.0)


class Coefficient:
    """How far a dynamic temperature is from the optimum; whatever is not dynamic is far."""

    def rungs(self, extension):
        inner = extension.scales[0].inner if extension.scales else None
        yield abs(inner.coefficient - COEFFICIENT) if inner else 1.0

    def slopes(self, extension):
        return None

    def figures(self, extension):
        return Measurements(next(self.rungs(extension)), damage=0.0, slowdown=1.0)


def study(wanted=None, takes=is_static, storage=None, name="fit", marks=None):
    return open_study(storage, name, wanted or goal(), marks or {"weights": "a"}, takes)


def file_in(place):
    return f"sqlite:///{place / 'study.sqlite'}"


def outcome(study):
    """What was tried and what came of it, in an order of its own."""
    return sorted(
        (each.space, str(sorted(each.values.items())), str(each.rungs), str(each.figures))
        for each in finished_trials(study)
    )
