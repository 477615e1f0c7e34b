"""How far a model gets: from scores at several lengths (shares of what could be right) to one number.

    fixed bar     the longest length that scores more than Llama-2-7B-chat does at 4,096 tokens, 85.6 %
    own bar       the longest length that scores at least 85 % of what the bare model scores at its trained length
    wAvg(inc)     sum_i i s_i / sum_i i                over lengths 1 ... n, the longer the heavier
    wAvg(dec)     sum_i (n + 1 - i) s_i / sum_i i      the shorter the heavier

Both bars ask that every shorter length passes too: one that passes by chance behind one that fails is no reach.

Source: the fixed bar and the averages are RULER's (Hsieh et al. 2024, arXiv:2404.06654, sec. 4); the bar of one's own
is NoLiMa's (Modarressi et al. 2025, arXiv:2502.05167), and serves models and tasks that the fixed one says nothing of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from ropewalk.errors import InvalidValue

LLAMA_2, OWN = 0.856, 0.85


class EffectiveLength(NamedTuple):
    """What scores at several lengths come to; a length is nothing where even the shortest fails."""

    fixed: int | None
    own: int | None
    rising: float
    falling: float


def effective(scores: Mapping[int, float], own: float) -> EffectiveLength:
    """By both rules and both averages; `own` is what the bare model scores at its trained length."""
    if not scores or not all(0 <= score <= 1 for score in scores.values()):
        raise InvalidValue("scores", "shares from 0 to 1, of one length at least", dict(scores))
    lengths = sorted(scores)
    ordered = [scores[length] for length in lengths]
    fixed = list(takewhile(lambda length: scores[length] > LLAMA_2, lengths))
    # A bare model that finds nothing sets no bar.
    relative = list(takewhile(lambda length: own > 0 and scores[length] >= OWN * own, lengths))
    return EffectiveLength(_last(fixed), _last(relative), _rising(ordered), _rising(ordered[::-1]))


def _rising(ordered: Sequence[float]) -> float:
    """The average with weights 1, 2, ... n."""
    weights = range(1, len(ordered) + 1)
    return sum(weight * score for weight, score in zip(weights, ordered, strict=True)) / sum(weights)


def _last(lengths: Sequence[int]) -> int | None:
    return lengths[-1] if lengths else None
