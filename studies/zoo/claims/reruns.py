"""What an article claims of runs with other seeds: whether they differ more beyond the trained length."""

from __future__ import annotations

from statistics import stdev

from ropewalk.measure.metrics.intervals import mean

from studies.claims import NOT_MEASURED, POINTS, Claim, JudgedClaim, judge
from studies.zoo.figures import ACCURACY, PLAIN, ZooFigures
from studies.zoo.methods import TRAINED

LEAST = 3  # trained methods with several seeds: an interval over methods needs some
AXES = ("length of the text, in trained lengths", "standard deviation over seeds, points")
CLAIM = Claim(
    "reruns-differ",
    "Runs of one method differ more beyond the trained length: over the methods, the standard deviation over seeds is "
    "larger at 8x than at 1x.",
    "kexue.fm/9577",
    (("standard deviation over seeds at 8x, less that at 1x",),),
    theirs="'may fluctuate clearly' when experiments on extrapolation are run again",
    note="The interval is over the trained methods.",
)


def rerun_verdict(ours: ZooFigures) -> JudgedClaim:
    """Over every method that was trained with several seeds."""
    names = [name for name in ours.methods if name in TRAINED and len(ours.seeds(name)) > 1]
    if len(names) < LEAST:
        return JudgedClaim(claim=CLAIM, reason=NOT_MEASURED, unit=POINTS)
    spreads = {times: [_spread(ours, name, times) for name in names] for times in ours.times(PLAIN)}
    more = [far - near for far, near in zip(spreads[8], spreads[1], strict=True)]
    curve = [(times, mean(of_methods, least=0)) for times, of_methods in spreads.items()]
    drawn = f"{len(names)} methods"
    return judge(
        CLAIM, lambda terms, level: mean(more, level=level), POINTS, AXES, {"mean over methods": curve}, drawn=drawn
    )


def _spread(ours: ZooFigures, name: str, times: int) -> float:
    return stdev(ours.all(name, times, PLAIN, ACCURACY))
