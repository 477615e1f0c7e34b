"""Rank correlation of two numbers over groups of measurements, with an interval over groups.

    rank_i = sum_j w_j ([x_j < x_i] + [x_j = x_i] / 2) + 1/2          equal values share the mean of their ranks
    rho    = the correlation of the ranks of x and the ranks of y, weighted by w

Measurements of one group (an extension at several lengths) are not independent, so the bootstrap draws whole groups:
w_j is how often the group of j was drawn, and 1 for all j in the value itself. Of few groups the interval is wider, as
Student's would be.

Source: Spearman 1904, Am. J. Psychol. 15, 72-101, with ties as in Kendall 1945; resampling of groups: Davison & Hinkley
1997, sec. 3.8.

Legend: n point, r resample, g group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.measure.metrics.intervals import Estimate, outside

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
