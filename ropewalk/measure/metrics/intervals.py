"""Numbers with their uncertainty: shares of successes, means over documents, differences on the same documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from statistics import NormalDist, fmean, pvariance
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue

USUAL_LEVEL = 0.95  # how often an interval holds the truth, unless another level is asked for
MIN_LEVEL = 0.5  # below, an interval holds less than it leaves out
NORMAL = 1.959964  # the 97.5th percentile, for intervals of 95 %
MEAN_RESAMPLES = 2000
# Student's 97.5th percentiles for 1, 2, ... degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306)
MANY_FREEDOM = 30  # degrees of freedom from which on Fisher's expansion is right to 0.0002 at a level of 0.9999
FEW_PROJECTS = 4  # of fewer, which may be mere folders, several texts have no interval
FEW_SEEDS, TOO_FEW_SEEDS, SPLIT_SEEDS = 5, "too few seeds", "seeds of two kinds"
# Of so many normal seeds or more, the widest gap is that many standard deviations within its sides in 5 % of cases.
SPLIT = ((20, 2.0), (15, 2.33), (10, 3.13), (8, 3.81), (7, 4.5), (6, 5.43), (5, 7.11))
FEWEST_SKEWED = 4  # numbers from which on their skewness is taken into account
BY_CHANCE = 1 / 40  # of intervals of 95 % around no difference: those that lie wholly on one side
ONE_TEXT, TOO_FEW_PROJECTS = "one text", "too few projects"  # why an interval has no ends
SHARE, LOSS, ANY = (0.0, 1.0), (0.0, math.inf), (-math.inf, math.inf)  # ranges of numbers


class Estimate(NamedTuple):
    """A number and its interval, of 95 % unless it was asked for at another level."""

    value: float
    low: float
    high: float
    of: int  # number of measurements

    def clear_of(self, other: float) -> bool:
        """Whether the interval excludes a number."""
        return not self.low <= other <= self.high

    @property
    def why_open(self) -> str:
        """In words, why a difference has no interval; empty where it has one."""
        if not (self.low == -math.inf and self.high == math.inf):
            return ""
        return ONE_TEXT if self.of == 1 else TOO_FEW_PROJECTS

    def to_json(self) -> dict[str, float | None]:
        """Its parts by name; None for what is not finite: an open end, a number that is not known."""
        return {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}


def share(successes: float, trials: int, *, level: float = USUAL_LEVEL) -> Estimate:
    """A share of successes with Wilson's interval, which stays between 0 and 1 even for few trials.

    If a trial can succeed in part, the interval is wider than necessary.

    centre = (p + z^2/2n) / (1 + z^2/n),  half = z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n)

    Source: Wilson 1927, J. Am. Stat. Assoc. 22, 209-212.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise InvalidValue("successes", f"from 0 to the trials ({trials}, at least 1)", successes)
    z = _normal(level)
    p, square = successes / trials, z**2
    centre = (p + square / (2 * trials)) / (1 + square / trials)
    half = z * math.sqrt(p * (1 - p) / trials + square / (4 * trials**2)) / (1 + square / trials)
    # With no or only successes the interval reaches 0 or 1; only rounding would prevent it.
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Estimate(p, 0.0 if successes == 0 else low, 1.0 if successes == trials else high, trials)


def share_of_answers(texts: Sequence[Sequence[bool]], groups: Sequence[str] | None = None) -> Estimate:
    """The share of right answers to several questions about each text.

    Its interval is the wider of the one over texts (see `mean`) and Wilson's over answers. Answers about one text are
    right or wrong together, so Wilson's alone is too narrow; and where none is found, texts do not differ, so the one
    over texts alone has no width.
    """
    asked, (least, most) = [len(answers) for answers in texts], SHARE
    over_answers = share(sum(map(sum, texts)), sum(asked))
    shares = [fmean(answers) if answers else 0.0 for answers in texts]  # a text without a question has no weight
    over_texts = mean(shares, asked, groups=groups, least=least, most=most)
    low, high = min(over_texts.low, over_answers.low), max(over_texts.high, over_answers.high)
    return Estimate(over_answers.value, low, high, over_answers.of)


def minus(one: Estimate, other: Estimate) -> Estimate:
    """One estimate less another of other samples; of the same samples the interval is rather too wide.

    low = a - b - sqrt((a - a_low)^2 + (b_high - b)^2),      high = a - b + sqrt((a_high - a)^2 + (b - b_low)^2)

    Source: Zou & Donner 2008, Stat. Med. 27, 1693-1702; for shares Newcombe 1998, Stat. Med. 17, 873-890, method 10,
    which keeps a width where all trials succeed.
    """
    value = one.value - other.value
    below = math.hypot(one.value - one.low, other.high - other.value)
    above = math.hypot(one.high - one.value, other.value - other.low)
    return Estimate(value, value - below, value + above, one.of + other.of)


def mean(
    values: Sequence[float],
    weights: Sequence[float] | None = None,
    *,
    groups: Sequence[str] | None = None,
    least: float = -math.inf,
    most: float = math.inf,
    seed: int = 0,
    level: float = USUAL_LEVEL,
) -> Estimate:
    """A weighted mean over documents. Its interval is the wider of Student's and a bootstrap over documents.

    Student's is mean -+ t e, where e is the jackknife's error, and wider on the side to which the documents are skewed:
    see `_student_ends`. A bootstrap alone is too narrow: of ten documents it holds the mean in 90 % of cases.

    `groups` names the project of each document: documents of one project count as one draw, which makes the interval
    wider. With one document, or with too few projects, there is no interval. It is cut at `least` and `most`, the range
    of the values. `level` is how often it holds the mean: 0.95, or more where several are judged together.
    """
    if not values:
        raise InvalidValue("values", "at least one", 0)
    x = torch.tensor(values, dtype=torch.float64)
    w = torch.ones_like(x) if weights is None else torch.tensor(weights, dtype=torch.float64)
    if groups is not None:
        groups = [group for group, weight in zip(groups, w.tolist(), strict=True) if weight]
    x, w = x[w != 0], w[w != 0]  # else a resample of such documents alone would have no mean
    value, count = float((x * w).sum() / w.sum()), len(x)
    if not math.isfinite(value):
        return Estimate(value, math.nan, math.nan, count)  # no interval: it supports nothing
    if count == 1 or too_few_projects(groups):
        return Estimate(value, least, most, count)
    x, w = _of_groups(x, w, groups)
    freedom = _freedom(w) if len(x) < count else len(x) - 1
    below, above = _student_ends(x, w, freedom, level)
    times_drawn = _resamples(len(x), seed)
    means = (times_drawn @ (x * w)) / (times_drawn @ w)
    tail = round((1 - level) / 2, 12)  # 0.025 of 0.95, which subtraction alone misses by a rounding
    low, high = means.quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Estimate(value, max(least, min(low, value - below)), min(most, max(high, value + above)), count)


@lru_cache(maxsize=4)
def _resamples(count: int, seed: int) -> Tensor:
    """How often each document is in each resample; a report has thousands of means of as many documents."""
    drawn = torch.randint(count, (MEAN_RESAMPLES, count), generator=torch.Generator().manual_seed(seed))
    return torch.zeros(drawn.shape, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(drawn.shape).double())


def crossed_mean(
    table: Sequence[Sequence[float]],
    *,
    groups: Sequence[str] | None = None,
    least: float = -math.inf,
    most: float = math.inf,
    level: float = USUAL_LEVEL,
) -> Estimate:
    """The mean of a table whose rows and columns were both drawn, such as seeds and texts.

    Half of its width is sqrt(sum (t e)^2) over rows and columns: e is the jackknife's error of their means, t Student's
    percentile for their degrees of freedom. Where columns are skewed, it is wider on that side. What belongs to neither
    is counted twice: the interval is rather too wide. (One t for both, by Satterthwaite, holds the mean in 89 % of
    cases where two seeds differ more than texts do.) With `groups`, one for each column, whole groups of columns were
    drawn, such as projects; of too few the interval is open. It is cut at `least` and `most`. `level` is how often it
    holds the mean, if seeds are of one kind: see `why_too_few_seeds`.

    Source: Zou & Donner 2008, Stat. Med. 27, 1693-1702: limits of a sum from those of its parts.
    """
    x = torch.tensor(table, dtype=torch.float64)
    columns = _of_groups(x.mean(0), torch.ones_like(x[0]), groups)
    rows = _of_groups(x.mean(1), torch.ones_like(x[:, 0]), None)
    value = float(x.mean())
    if not math.isfinite(value):
        return Estimate(value, math.nan, math.nan, x.numel())  # no interval: it supports nothing
    if too_few_projects(groups) or len(rows[0]) == len(columns[0]) == 1:
        return Estimate(value, least, most, x.numel())
    below, above = 0.0, 0.0
    for (means, weights), skewed in ((rows, False), (columns, True)):
        if len(means) > 1:
            ends = _student_ends(means, weights, _freedom(weights), level, skewed=skewed)
            below, above = math.hypot(below, ends[0]), math.hypot(above, ends[1])
    return Estimate(value, max(least, value - below), min(most, value + above), x.numel())


def _student_ends(x: Tensor, w: Tensor, freedom: float, level: float, *, skewed: bool = True) -> tuple[float, float]:
    """How far an interval of a weighted mean reaches below it and above: t e, and more on the side of the skewness.

        above = t e + e min(q (1 + 2 t^2) / 6, t / 2),      q = sqrt(n (n - 1)) / (n - 2) sum u^3 / (sum u^2)^1.5 > 0

    u is by how much each of n changes the mean, and q, without weights, is the skewness over sqrt(n); below where q is
    less than 0. Without that, intervals of 95 % over eight skewed projects hold the mean in 92 %. Of normal numbers it
    makes an interval of four 17 % wider, of eight 9 %, of 24 3 %. Three do not tell their skewness. The limit of t / 2
    is ours: of few, or of unequal groups, q is rough. No side becomes narrower.

    Source: Johnson 1978, J. Am. Stat. Assoc. 73, 536-544, for t; Hall 1983, Ann. Statist. 11, 569-576, for the ends.
    """
    error, t, n = math.sqrt(_jackknife(x, w)), student(freedom, level), len(x)
    if not skewed or n < FEWEST_SKEWED or not error:
        return t * error, t * error
    u = w * (x - (x * w).sum() / w.sum()) / (w.sum() - w)
    q = math.sqrt(n * (n - 1)) / (n - 2) * float((u**3).sum() / (u**2).sum() ** 1.5)
    more = error * min(abs(q) * (1 + 2 * t**2) / 6, t / 2)
    return t * error + more * (q < 0), t * error + more * (q > 0)


def _of_groups(x: Tensor, w: Tensor, groups: Sequence[str] | None) -> tuple[Tensor, Tensor]:
    """The weighted mean and the weight of each group; without groups, everything as it is."""
    if groups is None:
        return x, w
    if len(groups) != len(x):
        raise InvalidValue("groups", f"one for each of the {len(x)} values", len(groups))
    names = list(dict.fromkeys(groups))
    place = torch.tensor([names.index(group) for group in groups])
    weight = torch.zeros(len(names), dtype=w.dtype).index_add(0, place, w)
    total = torch.zeros_like(weight).index_add(0, place, x * w)
    return total / weight.where(weight > 0, 1), weight


def _freedom(w: Tensor) -> float:
    """Degrees of freedom of groups of these sizes: one less than (sum w)^2 / sum w^2, which is n where all are alike.

    Source: Kish 1965, Survey Sampling, sec. 8.2: the effective number. With n - 1 intervals of unequal groups are too
    narrow.
    """
    return max(1.0, float(w.sum() ** 2 / (w**2).sum()) - 1)


def _jackknife(x: Tensor, w: Tensor) -> float:
    """The squared error of a weighted mean: e^2 = (n - 1) / n sum (w (x - mean) / (sum w - w))^2.

    It is s^2 / n where all weights are equal. For groups of unequal size it is on the safe side.

    Source: MacKinnon, Nielsen & Webb 2023, J. Econometrics 232, 272-299: their CV3 for a mean.
    """
    value = (x * w).sum() / w.sum()
    without_one = w * (x - value) / (w.sum() - w)
    return (len(x) - 1) / len(x) * float(torch.linalg.vector_norm(without_one)) ** 2


def _normal(level: float) -> float:
    """The normal percentile at which an interval of this level ends."""
    if not MIN_LEVEL <= level < 1:
        raise InvalidValue("level", f"at least {MIN_LEVEL} and below 1", level)
    return NORMAL if level == USUAL_LEVEL else NormalDist().inv_cdf((1 + level) / 2)


@cache
def student(freedom: float, level: float = USUAL_LEVEL) -> float:
    """Student's percentile at which an interval of this level ends, both ends alike: the 97.5th of 95 %.

    At 95 %, below 8 degrees of freedom, it is from a table, between whose rows the logarithm is linear in 1 / freedom:
    up to 3 % above. At other levels it is right to 0.001.

    Source: Fisher's expansion around the normal one, Abramowitz & Stegun 1964, 26.7.5, for many degrees of freedom.
    """
    z, v = _normal(level), freedom
    if v < 1:
        raise InvalidValue("freedom", "at least 1", freedom)
    if level == USUAL_LEVEL and freedom < len(STUDENT):
        row = int(freedom)
        share = (1 / row - 1 / freedom) / (1 / row - 1 / (row + 1))
        return float(STUDENT[row - 1] ** (1 - share) * STUDENT[row] ** share)
    if level != USUAL_LEVEL and freedom < MANY_FREEDOM:
        return _student_of_few(freedom, level)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + math.fsum(term / v**power for power, term in enumerate(terms, 1))


def _student_of_few(freedom: float, level: float) -> float:
    """Student's percentile by halving x = freedom / (freedom + t^2), with which the share beyond t rises."""
    low, high = 0.0, 1.0
    for _ in range(100):
        x = (low + high) / 2
        low, high = (x, high) if _beyond(x, freedom) < 1 - level else (low, x)
    return math.sqrt(freedom * (1 - high) / high)


def _beyond(x: float, freedom: float) -> float:
    """The share of Student's distribution beyond -t and t, the incomplete beta function I_x(freedom / 2, 1 / 2).

    I_x(a, b) = x^a (1 - x)^b Gamma(a + b) / (Gamma(a + 1) Gamma(b)) sum_n x^n prod_(k <= n) (a + b + k - 1) / (a + k)

    Source: Abramowitz & Stegun 1964, 26.5.4 and 26.7.1.
    """
    a, term, total, n = freedom / 2, 1.0, 0.0, 0
    while term > 1e-9 * total * (1 - x):  # what follows is less than term / (1 - x)
        total, n = total + term, n + 1
        term *= x * (a + n - 0.5) / (a + n)
    factor = math.lgamma(a + 0.5) - math.lgamma(a + 1) - math.lgamma(0.5)
    return math.exp(a * math.log(x) + math.log1p(-x) / 2 + factor) * total


def outside(resamples: int, drawn: int) -> int:
    """How many resamples, in order, lie below an interval of 95 % of a bootstrap over so many drawn, and above it.

    They are fewer than 2.5 %, since a bootstrap of few is too narrow:  Phi(-t sqrt(n / (n - 1))).

    Source: Hesterberg 2015, Am. Stat. 69, 371-386: expanded percentiles.
    """
    limit = student(drawn - 1) * math.sqrt(drawn / (drawn - 1))
    return int(resamples * math.erfc(limit / math.sqrt(2)) / 2)


def means(samples: Sequence[Mapping[str, Any]], **ranges: tuple[float, float]) -> dict[str, Estimate]:
    """The mean of each number over samples; a range is what the number can be."""
    groups = projects_of(samples)
    return {
        name: mean([sample[name] for sample in samples], groups=groups, least=least, most=most)
        for name, (least, most) in ranges.items()
    }


def projects_of(samples: Sequence[Mapping[str, Any]]) -> Sequence[str] | None:
    """The groups that samples are drawn in, their projects; none where samples do not say theirs."""
    projects = [sample.get("project", "") for sample in samples]
    return projects if all(projects) else None


def too_few_projects(groups: Sequence[str] | None) -> bool:
    """Whether several texts are of fewer than four projects: texts of one are alike, so their spread says too little.

    Over 24 texts of three projects an interval of 95 % would hold the mean in 53 %. Texts that are each a project of
    their own, as files of a folder, are drawn alone, however few.
    """
    return groups is not None and len(set(groups)) < min(FEW_PROJECTS, len(groups))


def why_too_few_seeds(table: Sequence[Sequence[float]], least: int = FEW_SEEDS) -> str:
    """In words, why an interval over the rows of a table cannot be trusted; empty where nothing speaks against it.

    Student's percentile takes seeds for normal. Where some trainings fail, they are of two kinds, and of few seeds all
    may be of one. If 15 of 100 lie 12 standard deviations below, intervals of 95 % over 3, 5 and 8 seeds hold the mean
    of all in 72, 60 and 75 % of cases, and only over forty in 93 %. Of those that are not refused here, five seeds or
    more, 93 % or more hold the mean of the trainings that do not fail (benchmarks/coverage.py). Seeds split where the
    widest gap between two neighbors is, in standard deviations within both sides, wider than of 95 % of normal seeds.
    Of fewer than five that cannot be seen: 5 % of three normal seeds have a gap of 45.
    """
    means = sorted(sum(row) / len(row) for row in table)
    if len(means) < least:
        return TOO_FEW_SEEDS
    limit = next((limit for count, limit in SPLIT if count <= len(means)), math.inf)
    gap, place = max((b - a, place) for place, (a, b) in enumerate(pairwise(means), 1))
    squares = math.fsum(pvariance(side) * len(side) for side in (means[:place], means[place:]))
    return SPLIT_SEEDS if gap > limit * math.sqrt(squares / (len(means) - 2)) else ""


def difference(
    values: Sequence[float],
    others: Sequence[float],
    *,
    weights: Sequence[float] | None = None,
    groups: Sequence[str] | None = None,
    seed: int = 0,
    level: float = USUAL_LEVEL,
) -> Estimate:
    """The mean difference on the same documents: what the documents have in common cancels out.

    Documents may have weights; those of weight 0 are left out. Documents of one of the `groups` are alike.
    """
    if len(values) != len(others):
        raise InvalidValue("values", f"as many as there are to compare with ({len(others)})", len(values))
    weights = [1.0] * len(values) if weights is None else weights
    changes = [a - b if weight else 0.0 for a, b, weight in zip(values, others, weights, strict=True)]
    return mean(changes, weights, groups=groups, seed=seed, level=level)
