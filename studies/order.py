"""Whether schedules without training confuse the order of near tokens: what an article claims, judged on the carried
model.

python -m studies.order    measure, and write results/order/order.json

Two neighbouring tokens of a text are swapped. A model that knows their order reads a token behind them worse than
before: by how many nats?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.carried import carried
from studies.claims import ARTICLE_3, LEVEL, NATS, Claim, JudgedClaim, judge
from studies.records import write

PLACE = Path(__file__).resolve().parent / "results" / "order" / "order.json"
BASE, NTK = "rope", "ntk"
LINES = (BASE, "pi", NTK, "by_parts", "yarn")
TIMES, TEXTS, CORPUS = 8, 48, "python"  # schedules are set to so many trained lengths; texts have one
BEHIND = (1, 2, 4, 8, 16)  # tokens from a swapped pair to the token that is scored
EVERY = 32  # tokens a pair is swapped: far enough apart to be told apart
INCREASES = "increases of texts"
SOURCE = f"{ARTICLE_3} on arXiv:2309.00071"
NOTE = (
    "In texts of the trained length, with schedules set to eight of them. A schedule under which a model reads badly "
    "also makes it notice less."
)


class Increase(NamedTuple):
    """By how much the loss of the token behind a swapped pair is higher, in a sum."""

    weight: float
    line: str
    behind: int = 1

    def __str__(self) -> str:
        """Without its weight."""
        return f"increase by a swap under {self.line}"


def less(line: str, other: str) -> tuple[Increase, ...]:
    """By how much a swap is noticed less under one line than under another."""
    return Increase(1, other), Increase(-1, line)


CLAIMS = (
    Claim("pi-confuses", "PI blurs the order of near tokens: without training, a swap of two tokens raises the loss of "
          "the next one less than under plain rotation.", ARTICLE_3, (less("pi", BASE),),
          theirs="fine, local relations between tokens are 'blurred' or 'diluted'", note=NOTE),
    Claim("ntk-confuses", "NTK may confuse the order of very near tokens: without training, a swap of two tokens "
          "raises the loss of the next one less than under plain rotation.", SOURCE, (less(NTK, BASE),),
          theirs="'may'", note=NOTE),
    Claim("by-parts-keeps-order", "NTK by parts keeps the order of near tokens better than NTK: without training, a "
          "swap of two tokens raises the loss of the next one more.", SOURCE, (less(NTK, "by_parts"),),
          note=f"{NOTE} A difference as small as that of this claim would not matter."),
)  # fmt: skip


def swapped(ids: Tensor, behind: int) -> tuple[Tensor, list[int]]:
    """The text with pairs swapped, and the tokens that are scored: so many behind a pair of two different tokens."""
    changed, scored = ids.clone(), []
    for at in range(EVERY, len(ids), EVERY):
        first, second = at - behind - 1, at - behind
        if ids[first] != ids[second]:
            changed[first], changed[second] = ids[second], ids[first]
            scored.append(at)
    return changed, scored


def increase(model: PreTrainedModel, ids: Tensor, behind: int) -> float:
    """The mean over the scored tokens of a text."""
    from ropewalk.measure.metrics.losses import token_losses

    changed, scored = swapped(ids, behind)
    losses = token_losses(model, torch.stack([ids, changed])).losses_bn.double()
    at = torch.tensor(scored) - 1  # the first token has no loss
    return float((losses[1] - losses[0])[at].mean())


def measured() -> Mapping[str, Any]:
    """Every line and distance: one figure for each text."""
    from ropewalk import extended
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.measure.comparison.store import provenance

    opened = carried()
    model = opened.model
    length = trained_len(model)
    subject = opened.subject(CORPUS, length)
    increases: dict[str, dict[str, list[float]]] = {}
    for line in LINES:
        with torch.no_grad(), extended(model, line, target_len=TIMES * length):
            increases[line] = {
                str(behind): [round(increase(model, ids, behind), 5) for ids in subject.passages(TEXTS)]
                for behind in BEHIND
            }
    return {"made": provenance(), "projects": subject.projects(TEXTS), INCREASES: increases}


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the figures say of every claim."""
    return [_verdict(claim, kept[INCREASES], kept["projects"]) for claim in CLAIMS]


Figures = Mapping[str, Mapping[str, Sequence[float]]]


def _verdict(claim: Claim, figures: Figures, projects: Sequence[str]) -> JudgedClaim:
    lines = dict.fromkeys(term.line for terms in claim.sums for term in terms)
    return judge(
        claim,
        lambda terms, level: _sum(terms, figures, projects, level),
        NATS,
        ("tokens from the swapped pair to the scored token", "increase of its loss, nats"),
        {line: [(far, _sum([Increase(1, line, far)], figures, projects)) for far in BEHIND] for line in lines},
    )


def _sum(terms: Sequence[Increase], figures: Figures, projects: Sequence[str], level: float = LEVEL) -> Estimate:
    rows = [[term.weight * figure for figure in figures[term.line][str(term.behind)]] for term in terms]
    return crossed_mean([[sum(of_text) for of_text in zip(*rows, strict=True)]], groups=projects, level=level)


if __name__ == "__main__":
    write(PLACE, measured())
