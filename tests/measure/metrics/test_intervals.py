"""Intervals, against tables and against simulation."""

import math
from random import Random

import pytest
import torch
from scipy import stats

from ropewalk.errors import InvalidValue
from ropewalk.measure.metrics.intervals import (
    LOSS,
    SHARE,
    Estimate,
    crossed_mean,
    difference,
    mean,
    means,
    minus,
    outside,
    projects_of,
    share,
    share_of_answers,
    student,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Worked by hand from the formula, and as in Newcombe 1998, table I, for 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_shares_have_the_published_intervals(successes, trials, low, high):
    got = share(successes, trials)
    assert got.value == successes / trials
    assert got.low == pytest.approx(low, abs=5e-5)
    assert got.high == pytest.approx(high, abs=5e-5)


def test_all_and_none_touch_the_ends():
    assert share(0, 7).low == 0.0
    assert share(7, 7).high == 1.0
    assert share(7, 7).low == pytest.approx(1 - share(0, 7).high)


def test_answers_about_one_text_are_no_independent_draws():
    """Texts differ in how much of them is found: 0.4 on average. Wilson's interval takes each answer for a draw."""
    random, held, held_by_wilson, rounds = Random(0), 0, 0, 200
    for _ in range(rounds):
        chances = [random.betavariate(0.4, 0.6) for _ in range(16)]
        texts = [[random.random() < chance for _ in range(6)] for chance in chances]
        got, wilson = share_of_answers(texts), share(sum(map(sum, texts)), 96)
        assert got.value == wilson.value
        assert got.low <= wilson.low
        assert got.high >= wilson.high
        held += got.low <= 0.4 <= got.high
        held_by_wilson += wilson.low <= 0.4 <= wilson.high
    assert held_by_wilson / rounds < 0.8
    assert held / rounds >= 0.91


def test_a_share_of_answers_has_a_width_where_texts_do_not_differ():
    assert share_of_answers([[False] * 6] * 16) == share(0, 96)
    assert share_of_answers([[True, False], [False, True], []]) == share(2, 4)  # a text without a question is none
    assert share_of_answers([[True, False, False, False]])[:3] == (0.25, 0.0, 1.0)  # texts as a whole are not known
    alike = share_of_answers([[True] * 4, [True] * 4, [False] * 4, [False] * 4], ["a", "a", "b", "b"])
    assert alike[:3] == (0.5, 0.0, 1.0)  # nor are two projects enough


def test_nineteen_of_twenty_intervals_hold_the_truth():
    random, held = Random(0), 0
    for n in range(300):
        got = mean([random.gauss(3.0, 2.0) for _ in range(40)], seed=n)
        held += got.low <= 3.0 <= got.high
    assert 0.90 <= held / 300 <= 0.98


def test_a_mean_is_weighted():
    assert mean([1.0, 4.0], [3.0, 1.0]).value == 1.75
    assert mean([1.0, 1.0, 1.0]).clear_of(1.1)
    among = mean([0.0, 2.0, 1.0])
    assert not any(among.clear_of(other) for other in (among.low, 1.1, among.high))
    alone = mean([2.0])
    assert (alone.low, alone.high) == (-math.inf, math.inf)


def test_what_documents_share_falls_out_of_a_difference():
    random = Random(1)
    hard = [random.gauss(0, 5) for _ in range(30)]
    mine = [each + 0.5 + random.gauss(0, 0.1) for each in hard]
    paired = difference(mine, hard)
    assert paired.clear_of(0.4)
    assert not paired.clear_of(0.5)
    assert mean(mine).high - mean(mine).low > 20 * (paired.high - paired.low)


def test_what_is_refused():
    with pytest.raises(InvalidValue, match="from 0 to the trials"):
        share(3, 2)
    with pytest.raises(InvalidValue, match="from 0 to the trials"):
        share(0, 0)
    with pytest.raises(InvalidValue, match="at least one"):
        mean([])
    with pytest.raises(InvalidValue, match="as many as there are to compare with"):
        difference([1.0], [1.0, 2.0])


def test_few_documents_have_students_interval():
    """By hand: 1 and 3 have the mean 2, s = sqrt 2, s / sqrt n = 1, and t = 12.706 for one degree of freedom."""
    found = mean([1.0, 3.0])
    assert (found.low, found.high) == pytest.approx((2 - 12.706, 2 + 12.706))
    many = [float(n % 7) for n in range(40)]
    assert 1 < mean(many).high - mean(many).low < 2


# Printed tables, for example NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (8, 2.306), (9, 2.262), (11, 2.201), (23, 2.069), (60, 2.000), (1000, 1.962)]
)
def test_students_percentiles_are_those_of_the_tables(freedom, value):
    assert student(freedom) == pytest.approx(value, abs=6e-4)


# scipy.stats.t.ppf(0.975, freedom)
@pytest.mark.parametrize(
    ("freedom", "value"), [(1.25, 8.028), (1.5, 6.0167), (1.9996, 4.3039), (2.5, 3.5747), (7.5, 2.333), (15.3, 2.1278)]
)
def test_students_percentiles_between_whole_numbers(freedom, value):
    """Never below, which would make intervals too narrow, and at most 3 % above."""
    assert value * 0.9995 < student(freedom) < value * 1.03


@pytest.mark.parametrize("level", [0.5, 0.9, 0.9499, 0.975, 0.99, 0.995, 0.9999])
@pytest.mark.parametrize("freedom", [1, 1.3, 2, 3.7, 7.9, 8, 15.5, 29.9, 30, 200, 100_000])
def test_students_percentiles_of_other_levels(freedom, level):
    assert student(freedom, level) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=3e-4)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.98, 0.9999])
def test_students_percentiles_that_have_a_closed_form(level):
    """Of one degree of freedom Cauchy's distribution, and of two P(|T| < t) = t / sqrt(2 + t^2)."""
    assert student(1, level) == pytest.approx(math.tan(math.pi * level / 2), rel=1e-4)
    assert student(2, level) == pytest.approx(level * math.sqrt(2 / (1 - level**2)), rel=1e-4)


# Printed tables: the 95th, 99th and 99.95th percentile, NIST/SEMATECH e-Handbook, 1.3.6.7.2.
@pytest.mark.parametrize(("freedom", "level", "value"), [(4, 0.9, 2.132), (4, 0.98, 3.747), (10, 0.99, 3.169)])
def test_students_percentiles_of_other_levels_are_those_of_the_tables(freedom, level, value):
    assert student(freedom, level) == pytest.approx(value, abs=6e-4)


def test_an_interval_of_another_level():
    """By hand: 1 and 3 have s / sqrt n = 1, and t = tan(0.99 pi / 2) = 63.657 for one degree of freedom."""
    expected = pytest.approx((2, 2 - 63.657, 2 + 63.657, 2), abs=1e-3)
    assert mean([1.0, 3.0], level=0.99) == expected
    assert crossed_mean([[1.0, 3.0]], level=0.99) == expected
    assert difference([2.0, 5.0], [1.0, 2.0], level=0.99) == expected
    # Five of 0 weigh 9, five of 1 weigh 1, and the bootstrap is wider: of ten drawn, 7 and 8 are ones at these levels.
    tops = [mean([0.0] * 5 + [1.0] * 5, [9.0] * 5 + [1.0] * 5, level=level).high for level in (0.8, 0.95)]
    assert tops == pytest.approx([7 / (7 + 3 * 9), 8 / (8 + 2 * 9)])
    assert share(81, 263, level=0.99).high == pytest.approx(0.3853, abs=1e-4)  # by hand, with z = 2.5758


@pytest.mark.parametrize("level", [0.4, 1.0, math.nan])
def test_levels_that_are_refused(level):
    for estimate in (mean, lambda row, **more: crossed_mean([row], **more)):
        with pytest.raises(InvalidValue, match=r"level must be at least 0\.5 and below 1"):
            estimate([1.0, 2.0], level=level)
    with pytest.raises(InvalidValue, match="freedom must be at least 1"):
        student(0.5)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("count", [3, 5, 10, 24])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_interval_holds_the_mean_in_95_of_100_draws(count, weighted):
    """1,000 draws of normal numbers around 1; the share of hits has an error of 0.007."""
    generator = torch.Generator().manual_seed(count)
    x = 1 + torch.randn(1000, count, generator=generator, dtype=torch.float64)
    weights = torch.rand(count, generator=generator).add(0.5).tolist() if weighted else None
    found = [mean(row, weights, seed=seed) for seed, row in enumerate(x.tolist())]
    assert sum(one.low <= 1 <= one.high for one in found) / 1000 > 0.92  # a bootstrap alone: 0.90 of ten, less of fewer


def test_an_interval_ends_where_values_must():
    samples = [{"accuracy": 0.6, "loss": 0.1}, {"accuracy": 0.95, "loss": 2.0}, {"accuracy": 1.0, "loss": 4.0}]
    free, bound = mean([0.6, 0.95, 1.0]), means(samples, accuracy=SHARE, loss=LOSS)
    assert free.high > 1
    assert bound["accuracy"] == free._replace(high=1.0)
    assert bound["loss"].low == 0
    assert bound["loss"].high == mean([0.1, 2.0, 4.0]).high
    assert mean([0.5], least=0.0, most=1.0) == (0.5, 0.0, 1.0, 1)


def test_differences_are_of_the_same_document():
    """By hand: -2, 0 and 2 have the mean 0, s = 2, and t = 4.303 for two degrees of freedom; in rank all are alike."""
    found = difference([1.0, 5.0, 9.0], [3.0, 5.0, 7.0])
    crossed = difference([0.0, 1.0, 2.0], [2.0, 1.0, 0.0])
    for each in (found, crossed):
        assert (each.value, each.low, each.high) == pytest.approx((0, -4.303 * 2 / 3**0.5, 4.303 * 2 / 3**0.5))


def test_what_is_drawn_keeps_its_weight():
    """Five of 0 weigh 9, five of 1 weigh 1: of ten drawn, 2 to 8 are ones in 98 of 100 cases, and 3 to 7 in 89.

    The lower end is Student's: sums without one weigh 41 or 49, t is 2.262 for nine degrees of freedom. What each moves
    the mean by is skewed downwards.
    """
    found = mean([0.0] * 5 + [1.0] * 5, [9.0] * 5 + [1.0] * 5)
    assert found.value == pytest.approx(0.1)
    error = (0.9 * 5 * ((9 * 0.1 / 41) ** 2 + (0.9 / 49) ** 2)) ** 0.5
    moved = [-9 * 0.1 / 41] * 5 + [0.9 / 49] * 5
    skewness = 90**0.5 / 8 * sum(each**3 for each in moved) / sum(each**2 for each in moved) ** 1.5
    assert found.low == pytest.approx(0.1 - (2.262 - skewness * (1 + 2 * 2.262**2) / 6) * error, abs=1e-4)
    assert found.high == pytest.approx(8 / (8 + 2 * 9))
    assert mean([0.0, 1.0], [0.0, 1.0]) == (1.0, -math.inf, math.inf, 1)  # only one counts


def test_json_has_no_infinity():
    assert Estimate(1.5, -math.inf, math.inf, 1).to_json() == {"value": 1.5, "low": None, "high": None, "of": 1}
    assert Estimate(math.nan, 0.0, 1.0, 2).to_json() == {"value": None, "low": 0.0, "high": 1.0, "of": 2}


def test_seeds_and_texts_were_both_drawn():
    """By hand: column means 1 and 3, row means 1.5 and 2.5; errors 1 and 0.5, each of one degree of freedom."""
    found = crossed_mean([[0.5, 2.5], [1.5, 3.5]])
    assert found == pytest.approx((2, 2 - 12.706 * 1.25**0.5, 2 + 12.706 * 1.25**0.5, 4))
    assert crossed_mean([[1.0, 3.0]]) == pytest.approx((2, 2 - 12.706, 2 + 12.706, 2))  # one seed: by the texts alone
    assert crossed_mean([[1.0, 1.0], [1.0, 1.0]]) == (1, 1, 1, 4)
    assert crossed_mean([[1.0]]) == (1, -math.inf, math.inf, 1)


def test_an_interval_over_seeds_and_texts_holds_the_mean():
    """Three seeds, 20 texts, each with a part of its own, and noise: at least 95 of 100."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((500, 3, 1), (500, 1, 20))]
    tables = 1 + 0.5 * draws[0] + draws[1] + torch.randn(500, 3, 20, generator=generator, dtype=torch.float64)
    found = [crossed_mean(table) for table in tables.tolist()]
    assert sum(one.low <= 1 <= one.high for one in found) / 500 > 0.93


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize(("of_seeds", "of_texts"), [(1.0, 1.0), (1.0, 0.3), (0.5, 1.0), (0.0, 1.0)])
def test_an_interval_over_few_seeds_holds_the_mean_whatever_differs_more(seeds, of_seeds, of_texts):
    """At least 95 of 100, less the error of 500 draws; one percentile for seeds and texts together: 89."""
    generator = torch.Generator().manual_seed(seeds)
    draws = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((500, seeds, 1), (500, 1, 23))]
    noise = 0.3 * torch.randn(500, seeds, 23, generator=generator, dtype=torch.float64)
    found = [crossed_mean(table) for table in (1 + of_seeds * draws[0] + of_texts * draws[1] + noise).tolist()]
    assert sum(one.low <= 1 <= one.high for one in found) / 500 > 0.93


def test_projects_of_nearly_as_many_texts_are_as_many():
    """Three projects of 43, 43 and 42 texts have two degrees of freedom, as three of 43 have."""
    widths = []
    for last in (43, 42):
        names = ["a"] * 43 + ["b"] * 43 + ["c"] * last
        found = crossed_mean([[{"a": 1.0, "b": 2.0, "c": 4.0}[name] for name in names]], groups=names)
        widths.append(found.high - found.low)
    assert widths[1] == pytest.approx(widths[0], rel=0.03)


@pytest.mark.parametrize(
    ("successes", "expected"),
    [
        ((56, 70, 48, 80), (0.2, 0.0524, 0.3339)),
        ((10, 10, 0, 20), (1.0, 0.6791, 1.0)),
        ((9, 10, 3, 10), (0.6, 0.1705, 0.8090)),
    ],
)
def test_difference_of_shares_as_in_newcombe_s_table(successes, expected):
    """Table II of the source, method 10."""
    a, m, b, n = successes
    assert minus(share(a, m), share(b, n))[:3] == pytest.approx(expected, abs=1e-4)


SIZES = (37, 18, 17, 13, 13, 7, 7, 5, 2, 2, 1, 1, 1, 1, 1, 1, 1)  # of the projects of the zoo's texts
PROJECTS = [str(place) for place, size in enumerate(SIZES) for _ in range(size)]


def _of_projects(draws: int, seeds: int) -> list[list[list[float]]]:
    """Texts with a part that their project shares, one of their own, and noise; around 1."""
    generator = torch.Generator().manual_seed(3)
    shared = torch.randn(draws, 1, len(SIZES), generator=generator, dtype=torch.float64)
    shared = shared.repeat_interleave(torch.tensor(SIZES), dim=2)
    own = torch.randn(draws, 1, len(PROJECTS), generator=generator, dtype=torch.float64)
    noise = torch.randn(draws, seeds, len(PROJECTS), generator=generator, dtype=torch.float64)
    return (1 + shared + own + 0.5 * noise).tolist()


@pytest.mark.parametrize(
    "estimate", [lambda row, **more: crossed_mean([row], **more), mean], ids=["table", "documents"]
)
def test_texts_of_one_project_do_not_count_as_many(estimate):
    """At least 93 of 100 with projects, and less than 75 if every text were drawn alone."""
    rows = [table[0] for table in _of_projects(400, 1)]
    held = {}
    for groups in (PROJECTS, None):
        found = [estimate(row, groups=groups) for row in rows]
        held[groups is None] = sum(one.low <= 1 <= one.high for one in found) / len(found)
    assert held[False] > 0.93
    assert held[True] < 0.75


FIVE = ([1.0, 3.0, 5.0, 5.0, 8.0], list("aabcd"))  # groups with the means 2, 5, 5 and 8


def test_a_mean_over_groups():
    whole = mean(FIVE[0], groups=FIVE[1])
    assert (whole.value, whole.of) == (4.4, 5)
    assert whole == pytest.approx(crossed_mean([FIVE[0]], groups=FIVE[1]))
    assert mean([1.0, 3.0, 5.0], groups=["a", "b", "c"]) == mean([1.0, 3.0, 5.0])
    unequal = ([1.0, 2.0, 3.0, 2.0, 2.0, 4.0, 6.0, 7.0], list("aaaaabcd"))
    assert mean(unequal[0], groups=unequal[1]) == pytest.approx(crossed_mean([unequal[0]], groups=unequal[1]))
    without = mean([1.0, 9.0, 3.0, 5.0, 5.0, 8.0], [1.0, 0.0, 1.0, 1.0, 1.0, 1.0], groups=list("aeabcd"))
    assert without == whole  # a document without weight takes its group along
    assert difference([2.0, 5.0, 6.0, 5.0, 9.0], [1.0, 2.0, 1.0, 0.0, 1.0], groups=FIVE[1]) == whole
    of_four = [{"project": name} for name in "aabcd"]
    assert projects_of(of_four) == list("aabcd")
    assert projects_of([*of_four, {}]) is None  # measured before samples said their project


@pytest.mark.parametrize("names", ["aab", "aaa", "aabbc"])
def test_several_texts_of_few_projects_have_no_interval(names):
    """Their mean stays; what is known of its range, too."""
    values = [1.0, 3.0, 5.0, 7.0, 9.0][: len(names)]
    for found in (
        mean(values, groups=list(names), least=0.0),
        crossed_mean([values, values], groups=list(names), least=0.0),
        means([{"loss": value, "project": name} for value, name in zip(values, names, strict=True)], loss=LOSS)["loss"],
    ):
        assert found[:3] == (sum(values) / len(values), 0.0, math.inf)
    changed = difference(values, [0.0] * len(values), groups=list(names))
    assert changed[1:] == (-math.inf, math.inf, len(names))
    assert changed.why_open == "too few projects"
    assert mean([1.0]).why_open == "one text"
    assert mean([1.0, 2.0]).why_open == mean(values, groups=list(names), least=0.0).why_open == ""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_texts_that_are_each_a_project_are_drawn_alone(count):
    """As the files of a folder: however few, they are as many draws."""
    values, names = [1.0, 3.0, 8.0][:count], ["a.txt", "b.txt", "c.txt"][:count]
    assert mean(values, groups=names) == mean(values)
    assert crossed_mean([values], groups=names) == crossed_mean([values])


def test_an_interval_over_seeds_and_projects_holds_the_mean():
    found = [crossed_mean(table, groups=PROJECTS) for table in _of_projects(400, 3)]
    assert sum(one.low <= 1 <= one.high for one in found) / len(found) > 0.93


def test_groups_are_drawn_as_wholes():
    """By hand: without a group the means are 6, 4.25, 4.25 and 3.5, and 25 / 7 - 1 of freedom are left."""
    errors = [6 - 4.4, 4.25 - 4.4, 4.25 - 4.4, 3.5 - 4.4]
    half = student(25 / 7 - 1) * math.sqrt(3 / 4 * math.fsum(error**2 for error in errors))
    lower = 4.4 - 1.5 * half  # they are skewed downwards, by more than is taken into account
    assert crossed_mean([FIVE[0]], groups=FIVE[1]) == pytest.approx((4.4, lower, 4.4 + half, 5))
    assert crossed_mean([[1.0, 3.0]], groups=["a", "b"]) == crossed_mean([[1.0, 3.0]])
    with pytest.raises(InvalidValue, match="groups must be one for each of the 5 values"):
        crossed_mean([FIVE[0]], groups=["a", "b", "c", "d"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 2])
def test_what_is_no_number_has_no_interval(value, place):
    values = [1.0, 2.0, 3.0]
    values[place] = value
    assert repr(mean(values, least=0.0)[:3]) == repr((value, math.nan, math.nan))
    assert mean([value]).of == 1


@pytest.mark.parametrize("table", [[[1.0, math.nan, 2.0]], [[math.nan]], [[1.0, 2.0], [math.inf, 1.0]]])
def test_a_table_with_what_is_no_number_has_no_interval(table):
    found = crossed_mean(table, least=0.0)
    assert repr(found[1:3]) == repr((math.nan, math.nan))
    assert not math.isfinite(found.value)


def test_a_document_without_weight_is_left_out():
    """A resample of such documents alone would have no mean."""
    assert mean([1.0, 2.0, 9.0], [1.0, 1.0, 0.0]) == mean([1.0, 2.0], [1.0, 1.0])
    assert mean([1.0, 9.0], [1.0, 0.0], least=0.0) == (1.0, 0.0, math.inf, 1)


@pytest.mark.parametrize("drawn", [2, 5, 14, 1000])
def test_percentiles_of_a_bootstrap_are_as_wide_as_students_interval(drawn):
    """Hesterberg 2015: the share below is that of a normal number below -t sqrt(n / (n - 1))."""
    share = stats.norm.cdf(-stats.t.ppf(0.975, drawn - 1) * (drawn / (drawn - 1)) ** 0.5)
    assert outside(10_000, drawn) == pytest.approx(10_000 * share, abs=1.2)
    assert outside(10_000, drawn) <= 250
