"""Whether StreamingLLM needs positions inside its cache instead of those of the text: what its source says, judged on
the carried model.

python -m studies.sink_positions          measure, and write results/sink-positions/sink-positions.json

Both lines show a query the same keys: four sinks and a window, together the trained length. Inside the cache a sink is
at most a trained length away; in the text it is as far as the text is long. Keys in the window are as far as they are.
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
from studies.claims import ARTICLE_2, LEVEL, NATS, Claim, JudgedClaim, judge
from studies.records import write

PLACE = Path(__file__).resolve().parent / "results" / "sink-positions" / "sink-positions.json"
CACHE, TEXT = "inside the cache", "of the text"
TIMES, TEXTS, CORPUS = (1, 2, 4, 8), 24, "python"  # texts are of so many trained lengths
END, HALF = "the last 256 tokens", "the last half of the text"
SCORED = (END, HALF)
N_SINK, END_TOKENS = 4, 256
LOSSES = "losses of texts"
SOURCE = f"{ARTICLE_2} on arXiv:2309.17453"
NOTE = (
    "Both lines show the same keys, so texts of the trained length are read alike. Between the sinks and a query of "
    "the text are distances that training did not have. Losses are of the beginnings of texts, so each length has "
    "other tokens."
)


class SinkLoss(NamedTuple):
    """The loss of some of a text's tokens, in a sum."""

    weight: float
    positions: str
    times: int
    scored: str = END

    def __str__(self) -> str:
        """Without its weight."""
        return f"loss of {self.scored} with positions {self.positions} at {self.times}x"


def lower(scored: str) -> tuple[tuple[SinkLoss, ...], ...]:
    """By how much the loss with positions inside the cache is lower, at each length beyond the trained one."""
    return tuple((SinkLoss(1, TEXT, times, scored), SinkLoss(-1, CACHE, times, scored)) for times in TIMES[1:])


CLAIMS = (
    Claim("positions-in-cache", "StreamingLLM needs positions inside the cache rather than those of the text: the "
          "loss of the last 256 tokens is lower at 2x, 4x and 8x.", SOURCE, lower(END), note=NOTE),
    Claim("positions-in-cache-half", "StreamingLLM needs positions inside the cache rather than those of the text: "
          "the loss of the last half of the text is lower at 2x, 4x and 8x.", SOURCE, lower(HALF), note=NOTE),
)  # fmt: skip


def lines(length: int) -> dict[str, str]:
    """The extension for either kind of positions, for a model of this trained length."""
    sinks = f"sinks:window={length - N_SINK},n_sink={N_SINK}"
    return {CACHE: sinks, TEXT: f"{sinks},renumber=false"}


def losses_of(model: PreTrainedModel, ids: Tensor, length: int) -> dict[str, dict[str, float]]:
    """The loss of the last tokens of a text's beginnings, and of their last halves, by trained lengths.

    What a token sees does not depend on what follows, so one reading has the losses of all beginnings.
    """
    from ropewalk.measure.metrics.losses import token_losses

    with torch.no_grad():
        losses = token_losses(model, ids[None]).losses_bn[0].double()  # the first token has none
    found: dict[str, dict[str, float]] = {scored: {} for scored in SCORED}
    for times in TIMES:
        end = times * length - 1
        for scored, count in ((END, END_TOKENS), (HALF, times * length // 2)):
            found[scored][str(times)] = round(float(losses[end - count : end].mean()), 5)
    return found


def measured() -> Mapping[str, Any]:
    """Both kinds of positions at every length: one figure for each text."""
    from ropewalk import extended
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.measure.comparison.store import provenance

    opened = carried()
    model = opened.model
    length = trained_len(model)
    subject = opened.subject(CORPUS, max(TIMES) * length)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for positions, line in lines(length).items():
        with extended(model, line):
            texts = [losses_of(model, subject.begun(ids, subject.longest), length) for ids in subject.passages(TEXTS)]
        found[positions] = {
            scored: {str(times): [one[scored][str(times)] for one in texts] for times in TIMES} for scored in SCORED
        }
    return {"made": provenance(), "projects": subject.projects(TEXTS), LOSSES: found}


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the figures say of every claim."""
    return [_verdict(claim, kept[LOSSES], kept["projects"]) for claim in CLAIMS]


Figures = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]


def _verdict(claim: Claim, figures: Figures, projects: Sequence[str]) -> JudgedClaim:
    scored = claim.sums[0][0].scored

    def curve(positions: str) -> list[tuple[float, Estimate]]:
        return [(times, _sum([SinkLoss(1, positions, times, scored)], figures, projects)) for times in TIMES]

    return judge(
        claim,
        lambda terms, level: _sum(terms, figures, projects, level),
        NATS,
        ("length of the text, in trained lengths", f"loss of {scored}, nats"),
        {f"positions {positions}": curve(positions) for positions in (CACHE, TEXT)},
    )


def _sum(terms: Sequence[SinkLoss], figures: Figures, projects: Sequence[str], level: float = LEVEL) -> Estimate:
    rows = [[term.weight * loss for loss in figures[term.positions][term.scored][str(term.times)]] for term in terms]
    return crossed_mean([[sum(of_text) for of_text in zip(*rows, strict=True)]], groups=projects, level=level)


if __name__ == "__main__":
    write(PLACE, measured())
