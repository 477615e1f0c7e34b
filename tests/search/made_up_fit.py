"""A search whose numbers are made up."""

import ropewalk as rw
from ropewalk.extension.notation import BARE
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.search.final_test import FinalTest, FitResult
from ropewalk.search.goal import Goal, Measurements
from ropewalk.search.trials import MeasuredTrial

FACTS = rw.Facts(trained_len=32, head_dim=8)
YARN, PI, BRED = (
    rw.parse(line) for line in ("yarn:factor=8", "pi:factor=8", "longrope:long=[1,2,4,9],short=[1,2,4,9],factor=8")
)


def estimate(value, half=0.01, of=8):
    return Estimate(value, value - half, value + half, of)


def judged(line, extension, loss, behind):
    return FinalTest(
        line=line,
        extension=extension,
        loss=estimate(loss, 0.3),
        behind=behind,
        damage=estimate(0.05),
        slowdown=1.25,
        keys=None,
    )


def tried(number, space, extension, loss, damage=0.1, whole=True):
    figures = Measurements(loss, damage, 1.1) if whole else None
    return MeasuredTrial(number, space, {"line": "yarn"}, extension, {0: loss}, figures, {}, seed=space == "hand_set")


def fitted():
    """Four trials, one of which was stopped; the answer beside three others."""
    history = (
        tried(0, "hand_set", YARN, 2.50),
        tried(1, "hand_set", PI, 2.90, 0.4),
        tried(2, "pairs", rw.parse("ntk:factor=8"), 2.95, whole=False),
        tried(3, "pairs", BRED, 2.40),
    )
    beside = (
        judged(BARE, rw.Extension(), 5.0, estimate(2.5)),
        judged("yarn", YARN, 2.55, estimate(0.05)),
        judged("pi", PI, 3.0, estimate(0.5)),
    )
    return FitResult(
        goal=Goal(facts=FACTS, target_len=256, deployable="static"),
        chosen=history[3],
        answer=judged("pairs #3", BRED, 2.5, estimate(0.0, 0.0)),
        beside=beside,
        history=history,
        marks={"weights": "abc"},
        made={"when": "today"},
    )
