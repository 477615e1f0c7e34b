"""Whether the loss falls when rows become longer during training: what an article says, judged by logs of the zoo.

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
from ropewalk.lab.claims import ARTICLE_2, NATS, Claim, JudgedClaim, judge
from ropewalk.lab.recipes.building_blocks import LOGGED
from ropewalk.lab.recipes.zoo.methods import LONGER, METHODS

PLACE = Path(__file__).resolve().parent / "results" / "switches" / "switches.json"
NEAR = 0.05  # share of the steps: what is compared before and after a switch
TRAININGS = "trainings"
CLAIM = Claim(
    "loss-at-switch",
    f"The training loss falls when rows become {LONGER} times longer: in the {NEAR:.0%} of the steps after it is lower "
    f"than in the {NEAR:.0%} before.",
    f"{ARTICLE_2} on arXiv:2309.16039",
    (("loss before the switch, minus loss after it",),),
    theirs="a picture, from 4,096 to 32,768 tokens",
    note="The base becomes 500,000 at the same step. Losses are means over all tokens of a row; a later token of a "
    "longer row has more context.",
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


def drop(training: Mapping[str, Any]) -> float:
    """The mean loss just before the switch, less that just after it."""
    last = training["losses"][-1][0]
    switch, near = METHODS[training["method"]].longer_from * last, NEAR * last
    before = [loss for step, loss in training["losses"] if switch - near < step <= switch]
    after = [loss for step, loss in training["losses"] if switch < step <= switch + near]
    return fmean(before) - fmean(after)


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the logs say."""
    fallen = mean([drop(one) for one in kept[TRAININGS]])
    curves = {f"{one['method']}, seed {one['seed']}": _curve(one["losses"]) for one in kept[TRAININGS]}
    return [judge(CLAIM, [fallen], NATS, ("step", "training loss, nats"), curves)]


def _curve(losses: Sequence[Sequence[float]]) -> list[tuple[float, Estimate]]:
    """What was logged, which has no interval."""
    return [(step, Estimate(loss, loss, loss, 1)) for step, loss in losses]


def write(kept: Mapping[str, Any]) -> None:
    """The claim, with what it follows from."""
    records = [verdict.record for verdict in verdicts(kept)]
    PLACE.parent.mkdir(exist_ok=True)
    PLACE.write_text(json.dumps({**kept, "claims": records}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write(collect(Path(sys.argv[1])) if len(sys.argv) > 1 else json.loads(PLACE.read_text("utf-8")))
