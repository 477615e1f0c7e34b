"""The map of losses by depth: its shades and numbers are those of the samples."""

import math
from dataclasses import replace

import pytest

from ropewalk.measure.comparison.runner import ResultRow
from ropewalk.measure.metrics.correlation import position_bias
from ropewalk.measure.report.comparison import as_json
from ropewalk.measure.report.score_maps import FULL, biases, loss_by_depth
from ropewalk.measure.tasks import Passkey

from measure.report.made_up import LENGTHS, comparison

TASK = Passkey(samples=10)


def cost(length, depth):
    """Harder in the middle, and in longer texts; beyond 6 nats in the longest."""
    return length / 64 * (2.5 if 0.4 <= depth < 0.6 else 1.0)


def with_depths(candidate, lengths=LENGTHS):
    """A candidate with two samples in each band of depth."""
    rows = [row for row in candidate.rows if row.task.name != "passkey"]
    for length in lengths:
        samples = [{"right": True, "depth": (n + 0.5) / 10, "loss": cost(length, (n + 0.5) / 10)} for n in range(10)]
        rows.append(ResultRow(candidate.extension, TASK, length, TASK.condense(samples), tuple(samples), 1.0))
    return replace(candidate, rows=tuple(rows))


@pytest.fixture(scope="module")
def made():
    plain = comparison(["yarn", "pi"])
    base, yarn, pi = plain.candidates
    return replace(plain, candidates=(base, with_depths(yarn), with_depths(pi, LENGTHS[:1])))


def rows(made):
    return {row.name: row.cells for row in loss_by_depth(made, "passkey").chart.rows}


def test_shades_and_words_are_the_losses(made):
    cells = rows(made)["yarn"]
    expected = [min(cost(length, band / 5) / FULL, 1.0) for length in LENGTHS for band in range(5)]
    assert [cell.share for cell in cells] == pytest.approx(expected)
    assert max(expected) == 1.0
    assert cells[2].words == "yarn, 64 tokens, depth 40% to 60%: 2.50 [2.50, 2.50] nats"
    assert [cell.text for cell in cells][:3] == ["1.0", "1.0", "2.5"]
    assert [cell.text for cell in rows(made)["pi"]].count("") == 5 * (len(LENGTHS) - 1)


def test_its_file_has_a_row_for_each_band(made):
    figure = loss_by_depth(made, "passkey")
    rows = [row for row in figure.numbers if row[0] == "yarn"]
    assert [row[1:4] for row in rows] == [(n, band / 5, cost(n, band / 5)) for n in LENGTHS for band in range(5)]
    assert {row[-1] for row in rows} == {2}


def test_a_loss_that_is_no_number_is_a_hole(made):
    base, yarn, pi = made.candidates
    (row,) = (row for row in pi.rows if row.task.name == "passkey")
    samples = ({**row.samples[0], "loss": math.inf}, *row.samples[1:])
    others = tuple(one for one in pi.rows if one is not row)
    broken = replace(made, candidates=(base, yarn, replace(pi, rows=(*others, row._replace(samples=samples)))))
    holes = [cell for cell in rows(broken)["pi"] if cell.text == ""]
    assert len(holes) == 5 * (len(LENGTHS) - 1) + 1
    assert holes[0].words.endswith("depth 0% to 20%: no number")


def test_json_has_bands_and_differences_with_intervals(made):
    stored = as_json(made)["candidates"][1]["position_bias"]
    assert list(stored) == ["passkey"]
    assert [row["length"] for row in stored["passkey"]] == list(LENGTHS)
    first = stored["passkey"][0]
    assert first["middle"]["value"] == pytest.approx(1.5)
    assert first["far"]["value"] == 0
    assert [band["value"] for band in first["bands"]] == [1.0, 1.0, 2.5, 1.0, 1.0]
    assert biases(made.candidates[1])["passkey"][64] == position_bias(made.candidates[1].rows[-3].samples)
