"""Whether the loss falls when rows become longer during training: what an article says, judged by logs of the zoo.

The loss falls during training anyway. So the fall at a switch is compared with the fall over the same steps in another
training of the same seed, whose rows become longer at another time.

python docs/switch_claims.py FOLDER   collect the logs of `ropewalk train zoo --out FOLDER`
python docs/switch_claims.py          judge what was collected again, after a change of the claims
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ropewalk.evaluation.metrics.intervals import Estimate, mean
from ropewalk.lab.claims import ARTICLE_2, NATS, NOT_MEASURED, ONE_SEED, Claim, JudgedClaim, judge
from ropewalk.lab.recipes.building_blocks import LOGGED
from ropewalk.lab.recipes.zoo.methods import LONGER, METHODS

PLACE = Path(__file__).resolve().parent / "results" / "switches" / "switches.json"
NEAR = 0.05  # share of the steps: what is compared before and after a switch
TRAININGS = "trainings"
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
    found = list[dict[str, Any]]()
    for path in sorted(folder.glob(f"models/longer_from_*/{LOGGED}")):
        method, _, seed = path.parent.name.rpartition("-")
        rows = json.loads(path.read_text("utf-8"))["rows"]
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
    found = []
    for seed in sorted({one["seed"] for one in trainings}):
        mine = [one for one in trainings if one["seed"] == seed]
        pairs = [(one, other, _share(one)) for one in mine for other in mine if _share(one) != _share(other)]
        if pairs:
            found.append(fmean(fall(one, share) - fall(other, share) for one, other, share in pairs))
    return found


def _share(training: Mapping[str, Any]) -> float:
    share = METHODS[training["method"]].longer_from
    assert share is not None
    return share


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the logs say."""
    by_seed = falls(kept[TRAININGS])
    if len(by_seed) < 2:
        return [JudgedClaim(claim=CLAIM, word=ONE_SEED if by_seed else NOT_MEASURED, unit=NATS)]
    curves = {f"{one['method']}, seed {one['seed']}": _curve(one["losses"]) for one in kept[TRAININGS]}
    return [judge(CLAIM, [mean(by_seed)], NATS, ("step", "training loss, nats"), curves)]


def _curve(losses: Sequence[Sequence[float]]) -> list[tuple[float, Estimate]]:
    """What was logged, which has no interval."""
    return [(step, Estimate(loss, loss, loss, 1)) for step, loss in losses]


def write(kept: Mapping[str, Any]) -> None:
    """The claim, with what it follows from."""
    records = [verdict.record for verdict in verdicts(kept)]
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps({**kept, "claims": records}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [place]:
            write(collect(Path(place)))
        case [] if PLACE.is_file():
            write(json.loads(PLACE.read_text("utf-8")))
        case _:
            sys.exit(__doc__)
