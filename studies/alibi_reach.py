"""Whether LM-Infinite serves a model with ALiBi, as its source says of MPT: judged on models of the zoo.

python -m studies.alibi_reach FOLDER   read the models of `python -m studies zoo --out FOLDER --set methods=alibi`

Each model is read as it was trained, and under LM-Infinite's reach: a window of the trained length, and ten first
tokens that appear as far as that. ALiBi's bias is that of the distance that is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.claims import ARTICLE_2, FEW_SEEDS, LEVEL, NATS, NOT_MEASURED, Claim, JudgedClaim, judge
from studies.records import read, write

PLACE = Path(__file__).resolve().parent / "results" / "alibi-reach" / "alibi-reach.json"
PLAIN, INFINITE = "ALiBi", "ALiBi under LM-Infinite"
LINES = {PLAIN: "alibi", INFINITE: "alibi+lm_infinite"}
TIMES = (1, 2, 4, 8)
SMALL = 0.02  # nats: a difference too small to report, as in `compare`
FEWEST_SEEDS = 3
LOSSES = "losses of texts"  # by seed, line and trained lengths
SOURCE = f"{ARTICLE_2} on arXiv:2308.16137"
MORE_NEAR = (
    "At 1x the scored tokens have 1 to 63 tokens before them, at 8x all that the reach shows: even a window alone "
    "gains by that, so this says little of far text."
)
THEIRS = "fluent to 32,000 tokens, with models of several kinds of relative positions"


class ReachLoss(NamedTuple):
    """The loss of the last tokens of the texts, in a sum."""

    weight: float
    line: str
    times: int

    def __str__(self) -> str:
        """Without its weight."""
        return f"{self.line} at {self.times}x"


CLAIMS = (
    Claim("lm-infinite-on-alibi", "A model with ALiBi reads 8x better under LM-Infinite than as it is.", SOURCE,
          ((ReachLoss(1, PLAIN, 8), ReachLoss(-1, INFINITE, 8)),), theirs=THEIRS),
    Claim("lm-infinite-on-alibi-flat", "A model with ALiBi loses nothing at 8x under LM-Infinite: its loss is at most "
          "0.02 above its own at 1x.", SOURCE, ((ReachLoss(1, PLAIN, 1), ReachLoss(-1, INFINITE, 8)),), -SMALL,
          theirs=THEIRS, note=MORE_NEAR),
)  # fmt: skip


def losses_of(folder: Path, line: str, texts: Tensor, length: int) -> dict[str, list[float]]:
    """The loss of the last tokens of each text, after more and more context; `length` tokens less one are scored."""
    from ropewalk import extended, load
    from ropewalk.measure.material.subject import without_extension
    from ropewalk.measure.metrics.losses import token_losses

    model = load(folder, dtype=torch.float32)
    found = {}
    with torch.no_grad(), without_extension(model), extended(model, line):
        for times in TIMES:
            read_texts = token_losses(model, texts[:, -times * length :]).last(length - 1).losses_bn.double()
            found[str(times)] = [round(float(loss), 5) for loss in read_texts.mean(1)]
    return found


def collect(folder: Path) -> dict[str, Any]:
    """Every finished model of the folder, on its held-out texts."""
    from ropewalk.measure.comparison.store import provenance

    recipe, held_out = read(folder / "recipe.json"), read(folder / "held_out.json")
    texts, losses = torch.tensor(held_out["tokens"]), {}
    for place in sorted(folder.glob("models/alibi-*/model")):
        seed = place.parent.name.removeprefix("alibi-")
        losses[seed] = {name: losses_of(place, line, texts, recipe["trained_len"]) for name, line in LINES.items()}
    return {"made": provenance(), "projects": held_out["projects"], LOSSES: losses}


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the figures say of every claim."""
    seeds = list(kept[LOSSES].values())
    if len(seeds) < FEWEST_SEEDS:
        reason = FEW_SEEDS if seeds else NOT_MEASURED
        return [JudgedClaim(claim=claim, reason=reason, unit=NATS) for claim in CLAIMS]
    return [_verdict(claim, seeds, kept["projects"]) for claim in CLAIMS]


Figures = Mapping[str, Mapping[str, Sequence[float]]]


def _verdict(claim: Claim, seeds: Sequence[Figures], projects: Sequence[str]) -> JudgedClaim:
    return judge(
        claim,
        lambda terms, level: _sum(terms, seeds, projects, level),
        NATS,
        ("length of the text, in trained lengths", "loss of the last tokens, nats"),
        {line: [(times, _sum([ReachLoss(1, line, times)], seeds, projects)) for times in TIMES] for line in LINES},
        drawn=f"{len(seeds)} seeds",
    )


def _sum(
    terms: Sequence[ReachLoss], seeds: Sequence[Figures], projects: Sequence[str], level: float = LEVEL
) -> Estimate:
    table = []
    for figures in seeds:
        rows = [[term.weight * loss for loss in figures[term.line][str(term.times)]] for term in terms]
        table.append([sum(of_text) for of_text in zip(*rows, strict=True)])
    return crossed_mean(table, groups=projects, level=level)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(PLACE, collect(Path(sys.argv[1])))
