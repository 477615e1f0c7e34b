"""Figures of what methods do by themselves: the numbers behind them, and who shares a line."""

import math

import pytest

import ropewalk as rw
from ropewalk.measure.report.formulas import decay_by_distance, formulas, rotations_by_pair

FACTS = rw.Facts(trained_len=64, head_dim=8, base=10_000.0)
LINES = ("rope", "pi:factor=4", "rerope:window=16", "window:window=16")
EXTENSIONS = {line: rw.parse(line) for line in LINES}
KEYS = {line: key for key, line in enumerate((*LINES, "log_n", "nope"))}


def of(drawn, line):
    return [dict(zip(drawn.head, row, strict=True)) for row in drawn.numbers if row[0] == line]


def test_decay_is_the_formula_in_bins():
    drawn = decay_by_distance(EXTENSIONS, FACTS, 192, KEYS)  # bins of two distances
    thetas = [10_000 ** (-n / 4) for n in range(4)]
    for n, row in enumerate(of(drawn, "rope")):
        values = [sum(math.cos(s * theta) for theta in thetas) / 4 for s in (2 * n, 2 * n + 1)]
        assert row["distance"] == 2 * n + 0.5
        assert (row["mean"], row["low"], row["high"]) == pytest.approx((sum(values) / 2, min(values), max(values)))
    assert [math.isnan(row["mean"]) for row in of(drawn, "window:window=16")] == [False] * 8 + [True] * 88
    assert len(drawn.numbers) == 4 * 96


def test_turns_of_every_pair_and_a_table_of_some():
    drawn = rotations_by_pair(EXTENSIONS, FACTS, 256, KEYS)
    rows = of(drawn, "pi:factor=4")
    assert [row["pair"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert row["turns_trained"] == pytest.approx(64 * 10_000 ** (-row["pair"] / 4) / math.tau)
        assert row["turns_asked"] == pytest.approx(row["turns_trained"])
        assert row["unseen"] is False
    assert drawn.chart.panels[0].y.kind == "log"
    assert [row["unseen"] for row in of(drawn, "rope")] == [False, False, True, True]
    assert len(drawn.shown) == 16
    assert all(len(row) == len(drawn.head) for row in drawn.shown)
    assert [row[-1] for row in drawn.shown if row[0] == "rope"] == ["", "", "yes", "yes"]


def test_methods_that_ask_for_the_same_share_a_line():
    drawn = rotations_by_pair({**EXTENSIONS, "log_n": rw.parse("log_n")}, FACTS, 256, KEYS)
    lines = {line.name: line for line in drawn.chart.panels[0].series}
    shared = lines["rope, log_n"]
    assert (shared.key, *shared.also) == (KEYS["rope"], KEYS["log_n"])  # so isolating either leaves it
    assert sorted(lines) == ["pi:factor=4", "rerope:window=16", "rope, log_n", "window:window=16"]


def test_vectors_that_do_not_turn_do_not_decay():
    turns, drawn = formulas({"nope": rw.parse("nope")}, FACTS, 96, KEYS).figures
    assert turns.chart.panels[0].y.kind == "even"  # a logarithmic one has no 0
    assert [row[2:] for row in drawn.numbers] == [pytest.approx((1, 1, 1))] * 96
