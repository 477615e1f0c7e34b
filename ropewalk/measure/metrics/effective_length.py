"""Effective length: from scores (shares of correct answers) at several lengths to one number.

    fixed         the longest length that scores above Llama-2-7B-chat at 4,096 tokens, 85.6 %
    own           the longest length that scores at least 85 % of the base model at its trained length
    wAvg(inc)     sum_i i s_i / sum_i i                over lengths 1 ... n, longer ones weighted more
    wAvg(dec)     sum_i (n + 1 - i) s_i / sum_i i      shorter ones weighted more

Both thresholds require that every shorter length passes too: one that passes after one that failed passed by chance.

Source: the fixed threshold and the averages are RULER's (Hsieh et al. 2024, arXiv:2404.06654, sec. 4); the relative
threshold is NoLiMa's (Modarressi et al. 2025, arXiv:2502.05167), for models and tasks to which the fixed one does not
apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from ropewalk.errors import InvalidValue

LLAMA_2, OWN = 0.856, 0.85


class EffectiveLength(NamedTuple):
    """The summary of scores at several lengths; a length is None if even the shortest fails."""

    fixed: int | None
    own: int | None
    rising: float
    falling: float


def effective_length(scores: Mapping[int, float], standard: float) -> EffectiveLength:
    """By both thresholds and both averages; `standard` is the base model's score at its trained length."""
    if not scores or not all(0 <= score <= 1 for score in scores.values()):
        raise InvalidValue("scores", "shares from 0 to 1, of at least one length", dict(scores))
    lengths = sorted(scores)
    ordered = [scores[length] for length in lengths]
    fixed = list(takewhile(lambda length: scores[length] > LLAMA_2, lengths))
    # A base model that finds nothing is no standard.
    relative = list(takewhile(lambda length: standard > 0 and scores[length] >= OWN * standard, lengths))
    return EffectiveLength(_last(fixed), _last(relative), _rising(ordered), _rising(ordered[::-1]))


def _rising(ordered: Sequence[float]) -> float:
    """The average with weights 1, 2, ... n."""
    weights = range(1, len(ordered) + 1)
    return sum(weight * score for weight, score in zip(weights, ordered, strict=True)) / sum(weights)


def _last(lengths: Sequence[int]) -> int | None:
    return lengths[-1] if lengths else None
