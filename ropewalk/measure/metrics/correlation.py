"""Correlation of predictors, bias of positions, and the effective length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.measure.metrics.intervals import Estimate, mean, minus, outside
from ropewalk.methods.spec import Json

# Rank correlation of two numbers over groups of measurements, with an interval over groups.
#
#     rank_i = sum_j w_j ([x_j < x_i] + [x_j = x_i] / 2) + 1/2          equal values share the mean of their ranks
#     rho    = the correlation of the ranks of x and the ranks of y, weighted by w
#
# Measurements of one group (an extension at several lengths) are not independent, so the bootstrap draws whole groups:
# w_j is how often the group of j was drawn, and 1 for all j in the value itself. Of few groups the interval is wider,
# as Student's would be.
#
# Source: Spearman 1904, Am. J. Psychol. 15, 72-101, with ties as in Kendall 1945; resampling of groups: Davison &
# Hinkley 1997, sec. 3.8.
#
# Legend: n point, r resample, g group.


CORRELATION_RESAMPLES = 1000
KNOWN = 0.5  # share of the resamples in which both numbers must vary, for an interval

Point = tuple[float, ...]  # the numbers of one measurement
Groups = Sequence[Sequence[Point]]


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """The rank correlation; NaN where one of them does not vary.

    spearman([1, 2, 3], [10, 30, 20])  # 0.5
    """
    if len(x) != len(y):
        raise InvalidValue("y", f"as many as x ({len(x)})", len(y))
    return float(_rho_r(_column(x), _column(y), torch.ones(1, len(x), dtype=torch.float64)))


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share their mean."""
    ranked: list[float] = _ranks_rn(_column(values), torch.ones(1, len(values), dtype=torch.float64))[0].tolist()
    return ranked


def rank_correlation(groups: Groups, x: int, y: int) -> Estimate:
    """The correlation of two of the numbers of all points.

    rank_correlation([[(1, 4), (2, 3)], [(3, 2)], [(4, 1)]], 0, 1)  # -1, of four points
    """
    return _bootstrap(groups, lambda column, w_rn: _rho_r(column(x), column(y), w_rn))


def correlation_lead(groups: Groups, x: int, other: int, y: int) -> Estimate:
    """By how much closer to -1 the correlation of x with y is than that of another number with y, on the same groups.

    Losses should fall where scores rise: above 0, x is the better predictor.
    """
    return _bootstrap(
        groups, lambda column, w_rn: _rho_r(column(other), column(y), w_rn) - _rho_r(column(x), column(y), w_rn)
    )


def _bootstrap(groups: Groups, number: Callable[[Callable[[int], Tensor], Tensor], Tensor]) -> Estimate:
    """A number that follows from correlations, with a bootstrap over groups."""
    points = [point for group in groups for point in group]
    group_of = torch.tensor([g for g, group in enumerate(groups) for _ in group])
    drawn_rg = torch.randint(
        len(groups), (CORRELATION_RESAMPLES, len(groups)), generator=torch.Generator().manual_seed(0)
    )
    times_rg = torch.zeros(CORRELATION_RESAMPLES, len(groups), dtype=torch.float64)
    times_rg.scatter_add_(1, drawn_rg, torch.ones_like(times_rg))
    weight_rn = torch.cat([torch.ones(1, len(points), dtype=torch.float64), times_rg[:, group_of]])
    value, *spread = number(lambda place: _column([point[place] for point in points]), weight_rn).tolist()
    known = sorted(one for one in spread if not math.isnan(one))
    if len(groups) == 1 or len(known) < KNOWN * CORRELATION_RESAMPLES:
        return Estimate(value, -math.inf, math.inf, len(points))
    beyond = outside(len(known), len(groups))
    return Estimate(value, known[beyond], known[-1 - beyond], len(points))


def _rho_r(x_n: Tensor, y_n: Tensor, weight_rn: Tensor) -> Tensor:
    """The rank correlation under every row of weights."""
    total_r1 = weight_rn.sum(1, keepdim=True)
    a_rn, b_rn = (_ranks_rn(column_n, weight_rn) for column_n in (x_n, y_n))
    a_rn, b_rn = (rank_rn - (weight_rn * rank_rn).sum(1, keepdim=True) / total_r1 for rank_rn in (a_rn, b_rn))
    spread_r = torch.sqrt((weight_rn * a_rn**2).sum(1) * (weight_rn * b_rn**2).sum(1))
    return torch.where(spread_r > 0, (weight_rn * a_rn * b_rn).sum(1) / spread_r, torch.nan)


def _ranks_rn(values_n: Tensor, weight_rn: Tensor) -> Tensor:
    below_ij = (values_n[None] < values_n[:, None]).double() + (values_n[None] == values_n[:, None]).double() / 2
    return weight_rn @ below_ij.mT + 0.5


def _column(values: Sequence[float]) -> Tensor:
    if any(math.isnan(value) for value in values):
        raise InvalidValue("values", "numbers", "NaN")
    return torch.tensor(values, dtype=torch.float64)


# Position bias: how the loss of an answer depends on where in the text it stands.
#
#     band b         depths from b / 5 to (b + 1) / 5 of the text, the last one with its end; 0 is far from the question
#     middle         loss(band 2) - mean(loss(band 0), loss(band 4))       above 0: lost in the middle
#     far            loss(band 0) - loss(band 4)                           above 0: the beginning is harder than the end
#
# Intervals of differences are made from those of their parts, which have no sample in common.
#
# Source: the shape is Liu et al. 2024, arXiv:2307.03172 (lost in the middle), there of accuracy over the order of
# documents.


BANDS = 5  # of a text


class PositionBias(NamedTuple):
    """The loss in each band of depth that has samples, and what the bands have to say together."""

    bands: Mapping[int, Estimate]
    middle: Estimate | None  # None where a band that it needs has no samples
    far: Estimate | None

    def to_json(self) -> Json:
        """Bands by their beginning and end, and the differences that are known."""
        bands = [
            {"from": band / BANDS, "to": (band + 1) / BANDS, **loss.to_json()} for band, loss in self.bands.items()
        ]
        known = {"middle": self.middle, "far": self.far}
        return {"bands": bands, **{name: value and value.to_json() for name, value in known.items()}}


def position_bias(samples: Sequence[Mapping[str, Any]]) -> PositionBias:
    """From samples that have a depth and the loss of the right answer.

    bias = position_bias([{"depth": 0.1, "loss": 2.0}, {"depth": 0.5, "loss": 3.0}, {"depth": 0.9, "loss": 1.0}])
    bias.middle.value  # 1.5, with an interval that one sample for each band leaves open
    """
    by_band: dict[int, list[float]] = {}
    for sample in samples:
        by_band.setdefault(band_of(sample["depth"]), []).append(sample["loss"])
    bands = {band: mean(losses, least=0.0) for band, losses in sorted(by_band.items())}
    first, middle, last = (bands.get(band) for band in (0, BANDS // 2, BANDS - 1))
    far = minus(first, last) if first and last else None
    return PositionBias(bands, minus(middle, _half_of_both(first, last)) if middle and first and last else None, far)


def band_of(depth: float) -> int:
    """The band of a depth."""
    if not 0 <= depth <= 1:
        raise InvalidValue("depth", "from 0 to 1", depth)
    return min(int(depth * BANDS), BANDS - 1)


def _half_of_both(a: Estimate, b: Estimate) -> Estimate:
    """The mean of two independent estimates."""
    value, below = (a.value + b.value) / 2, math.hypot(a.value - a.low, b.value - b.low) / 2
    return Estimate(value, value - below, value + math.hypot(a.high - a.value, b.high - b.value) / 2, a.of + b.of)


# Effective length: from scores (shares of correct answers) at several lengths to one number.
#
#     fixed         the longest length that scores above Llama-2-7B-chat at 4,096 tokens, 85.6 %
#     own           the longest length that scores at least 85 % of the base model at its trained length
#     wAvg(inc)     sum_i i s_i / sum_i i                over lengths 1 ... n, longer ones weighted more
#     wAvg(dec)     sum_i (n + 1 - i) s_i / sum_i i      shorter ones weighted more
#
# Both thresholds require that every shorter length passes too: one that passes after one that failed passed by chance.
#
# Source: the fixed threshold and the averages are RULER's (Hsieh et al. 2024, arXiv:2404.06654, sec. 4); the relative
# threshold is NoLiMa's (Modarressi et al. 2025, arXiv:2502.05167), for models and tasks to which the fixed one does not
# apply.


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
