"""Whether a search finds better thresholds of turns than those that YaRN sets by hand, on the carried model.

python -m studies.thresholds    measure, and write results/thresholds/thresholds.json

Pairs of thresholds are searched on texts of one half of the held-out projects: the one with the lowest loss at eight
trained lengths. It is judged on texts of the other half.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from studies.carried import carried
from studies.claims import ARTICLE_5, Claim, JudgedClaim
from studies.records import write
from studies.untrained import LOSS, SMALL, TIMES, Reading, Readings, below, verdict

PLACE = Path(__file__).resolve().parent / "results" / "thresholds" / "thresholds.json"
CORPUS, FACTOR = "python", max(TIMES)
SEARCHED_ON, JUDGED_ON = 24, 32  # texts
SEARCH, FINAL, LOSSES = "search", "judging", "losses of texts"
THEIRS = "'I think that r still depends on being set by hand; a search can be introduced for a better r'; no figures"


class Turns(NamedTuple):
    """Pairs of dimensions with fewer turns than `low` are interpolated, those with more than `high` stay."""

    low: float
    high: float

    def __str__(self) -> str:
        """As figures are named."""
        return f"{self.low:g} to {self.high:g} turns"

    @property
    def line(self) -> str:
        """YaRN with these thresholds."""
        parts = f"by_parts:factor={FACTOR},low_turns={self.low:g},high_turns={self.high:g}"
        return f"{parts}+yarn_temperature:factor={FACTOR}"


BY_HAND = Turns(1, 32)
GRID = tuple(Turns(low, high) for low in (0.5, 1, 2, 3, 4, 8) for high in (8, 16, 32, 64) if low < high)
Losses = dict[str, dict[str, list[float]]]  # of texts, by thresholds and trained lengths


def losses_of(model: PreTrainedModel, ids: Tensor, length: int) -> dict[str, float]:
    """The loss of the last tokens of a text's beginnings, by trained lengths; half a trained length is scored.

    Static schedules are causal, so that one reading has the losses of all beginnings.
    """
    from ropewalk.measure.metrics.losses import token_losses

    losses = token_losses(model, ids[None]).losses_bn[0].double()  # the first token has none
    ends = {times: times * length - 1 for times in TIMES}
    return {str(times): round(float(losses[end - length // 2 : end].mean()), 5) for times, end in ends.items()}


def losses_under(model: PreTrainedModel, thresholds: Iterable[Turns], texts: Sequence[Tensor], length: int) -> Losses:
    """Every text under every pair of thresholds."""
    from ropewalk import extended

    found: Losses = {}
    for pair in thresholds:
        with torch.no_grad(), extended(model, pair.line, target_len=FACTOR * length):
            of_texts = [losses_of(model, ids, length) for ids in texts]
        found[str(pair)] = {str(times): [one[str(times)] for one in of_texts] for times in TIMES}
    return found


def ranked(losses: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Turns]:
    """The thresholds of the grid, with the lowest mean loss at the longest length first."""
    return sorted(GRID, key=lambda pair: fmean(losses[str(pair)][str(FACTOR)]))


def found_in(losses: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[Turns, Turns]:
    """The best thresholds other than YaRN's; and the best of those that differ from YaRN's in the upper one alone."""
    others = [pair for pair in ranked(losses) if pair != BY_HAND]
    return others[0], next(pair for pair in others if pair.low == BY_HAND.low)


def measured() -> Mapping[str, Any]:
    """The search, and what it found beside YaRN on other texts."""
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.measure.comparison.store import provenance
    from ropewalk.measure.material.subject import Subject

    opened = carried()
    model, tokenizer = opened.model, opened.tokenizer
    length = trained_len(model)

    def part(first: int, count: int, thresholds: Iterable[Turns]) -> dict[str, Any]:
        texts = Subject(model=model, tokenizer=tokenizer, corpus=CORPUS, longest=FACTOR * length, every=2, first=first)
        losses = losses_under(model, thresholds, texts.passages(count), length)
        return {"projects": texts.projects(count), LOSSES: losses}

    search = part(0, SEARCHED_ON, GRID)
    final = part(1, JUDGED_ON, dict.fromkeys((BY_HAND, *found_in(search[LOSSES]))))
    return {"made": provenance(), SEARCH: search, FINAL: final}


def claims_of(search: Mapping[str, Any]) -> tuple[Claim, ...]:
    """What is claimed of the thresholds that were found."""
    hand = str(BY_HAND)
    both, upper = map(str, found_in(search[LOSSES]))
    short = Reading(1, hand, 1), Reading(-1, both, 1)
    note = how(search)
    return (
        Claim("searched", "Searched thresholds of turns are better than those that YaRN sets by hand: without "
              "training, set to 8x, at 8x.", ARTICLE_5, (below(both, hand),), theirs=THEIRS, note=note),
        Claim("searched-upper", "A searched upper threshold alone, the article's r, is better than YaRN's: without "
              "training, set to 8x, at 8x. The lower one stays at 1 turn.", ARTICLE_5, (below(upper, hand),),
              theirs=THEIRS, note=note),
        Claim("short-texts", "The searched thresholds harm texts of the trained length by at most 0.02 more than those "
              "that are set by hand.", "ours", (short,), -SMALL, note=note),
    )  # fmt: skip


def how(search: Mapping[str, Any]) -> str:
    """How the thresholds were chosen, and where YaRN's stood among them."""
    projects, place = search["projects"], 1 + ranked(search[LOSSES]).index(BY_HAND)
    upper = sum(pair.low == BY_HAND.low for pair in GRID)
    return (
        "Pairs of dimensions with fewer turns than the lower threshold within the trained length are interpolated; "
        "those with more than the upper one (the article's r) stay. With 2 and 32 the line is "
        f"`{Turns(2, 32).line}`. {len(GRID)} pairs of thresholds, {upper} of them with YaRN's lower one, were tried on "
        f"{len(projects)} texts of {len(set(projects))} projects, in bfloat16, and the loss at 8x alone chose. YaRN's, "
        f"{BY_HAND}, was number {place} of {len(GRID)} there. The best of the others is judged here on texts of other "
        "projects, so the choice does not flatter it. A loss is of the last 256 tokens of a text's beginning, so each "
        "length has other tokens. The ramp is YaRN's as released, over the index of the dimensions."
    )


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the texts that were not searched on say."""
    ours = Readings({LOSS: kept[FINAL][LOSSES]}, kept[FINAL]["projects"])
    return [verdict(claim, ours) for claim in claims_of(kept[SEARCH])]


if __name__ == "__main__":
    write(PLACE, measured())
