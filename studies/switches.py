"""Whether the loss falls when rows become longer during training: what an article says, judged by logs of the zoo.

The loss falls during training anyway. So the fall at a switch is compared with the fall over the same steps in another
training of the same seed, whose rows become longer at another time.

python -m studies.switches FOLDER   collect the logs of `python -m studies zoo --out FOLDER`
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ropewalk.measure.metrics.intervals import Estimate, mean

from studies.claims import ARTICLE_2, NATS, NOT_MEASURED, ONE_SEED, Claim, JudgedClaim, judge
from studies.records import read, write
from studies.zoo.methods import LONGER, METHODS

PLACE = Path(__file__).resolve().parent / "results" / "switches" / "switches.json"
NEAR = 0.05  # share of the steps: what is compared before and after a switch
TRAININGS = "trainings"
BIN = 0.02  # share of the steps: a point of the curves
OFFSETS = [BIN * (place + 0.5) for place in range(-5, 5)]
CLAIM = Claim(
    "loss-at-switch",
    f"The training loss falls when rows become {LONGER} times longer: from the {100 * NEAR:g} % of the steps before to "
    f"the {100 * NEAR:g} % after, more than in a training of the same seed which switches at another time.",
    f"{ARTICLE_2} on arXiv:2309.16039",
    (("fall of the loss at the switch, minus its fall over the same steps without a switch",),),
    theirs="a picture, from 4,096 to 32,768 tokens",
    note="The base becomes 500,000 at the same step. Losses are means over all tokens of a row; a later token of a "
    "longer row has more context. Each seed counts once, with the mean over its switches.",
)


def collect(folder: Path) -> dict[str, Any]:
    """Logged losses of every training whose rows become longer."""
    from ropewalk.train.recipes.building_blocks import LOGGED  # here, since the pages need no packages of the training

    found = list[dict[str, Any]]()
    for path in sorted(folder.glob(f"models/longer_from_*/{LOGGED}")):
        method, _, seed = path.parent.name.rpartition("-")
        rows = read(path)["rows"]
        curve = [[row["step"], round(row["loss"], 4)] for row in rows]
        found.append({"method": method, "seed": int(seed), "losses": curve})
    trained = [one for one in found if METHODS[one["method"]].longer_from]
    if not trained:
        sys.exit(f"{folder} has no log of a training whose rows become longer")
    return {TRAININGS: trained}


def fall(training: Mapping[str, Any], share: float) -> float:
    """The mean loss just before a share of the steps, less that just after it."""
    last = training["losses"][-1][0]
    at, near = share * last, NEAR * last
    before = [loss for step, loss in training["losses"] if at - near < step <= at]
    after = [loss for step, loss in training["losses"] if at < step <= at + near]
    if not before or len(before) != len(after):
        sys.exit(f"log the loss more often: --set log_every={max(1, round(near / 15))}")
    return fmean(before) - fmean(after)


def falls(trainings: Sequence[Mapping[str, Any]]) -> list[float]:
    """For each seed the fall at its switches, less that of its other trainings over the same steps."""
    return [fmean(fall(one, share) - fall(other, share) for one, other, share in pairs) for pairs in by_seed(trainings)]


Pair = tuple[Mapping[str, Any], Mapping[str, Any], float]


def by_seed(trainings: Sequence[Mapping[str, Any]]) -> list[list[Pair]]:
    """For each seed that has several: a training, another, and the share of the steps after which only the first one
    switches."""
    found = []
    for seed in sorted({one["seed"] for one in trainings}):
        mine = [one for one in trainings if one["seed"] == seed]
        pairs = [(one, other, _share(one)) for one in mine for other in mine if _share(one) != _share(other)]
        found += [pairs] if pairs else []
    return found


def curve(trainings: Sequence[Mapping[str, Any]], *, switching: bool) -> list[tuple[float, Estimate]]:
    """The loss around a switch, by the distance from it in hundredths of the steps, over seeds."""

    def at(offset: float) -> Estimate:
        losses = [
            fmean(_around(one if switching else other, share + offset) for one, other, share in pairs)
            for pairs in by_seed(trainings)
        ]
        return mean(losses)

    return [(round(100 * offset, 1), at(offset)) for offset in OFFSETS]


def _around(training: Mapping[str, Any], share: float) -> float:
    last = training["losses"][-1][0]
    low, high = ((share + side * BIN / 2) * last for side in (-1, 1))
    return fmean(loss for step, loss in training["losses"] if low < step <= high)


def _share(training: Mapping[str, Any]) -> float:
    share = METHODS[training["method"]].longer_from
    assert share is not None
    return share


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the logs say."""
    fallen = falls(kept[TRAININGS])
    if len(fallen) < 2:
        return [JudgedClaim(claim=CLAIM, reason=ONE_SEED if fallen else NOT_MEASURED, unit=NATS)]
    curves = {
        "with a switch": curve(kept[TRAININGS], switching=True),
        "without": curve(kept[TRAININGS], switching=False),
    }
    axes, drawn = ("steps from the switch, % of all", "training loss, nats"), f"{len(fallen)} seeds"
    return [judge(CLAIM, lambda terms, level: mean(fallen, level=level), NATS, axes, curves, drawn=drawn)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(PLACE, collect(Path(sys.argv[1])))
