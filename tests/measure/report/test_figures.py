"""Figures of a comparison, as the page carries them: they are the measured numbers."""

import csv
import json
import math
from dataclasses import replace

import pytest

from ropewalk.measure.comparison.changes import changes_by_position
from ropewalk.measure.report.comparison import as_json, page_of, write_report
from ropewalk.measure.report.drawing.charts import Chart
from ropewalk.measure.report.figures import change, damage, headline, loss_by_length, loss_by_position
from ropewalk.measure.report.score_maps import score_by_depth, score_by_length
from ropewalk.measure.report.sections import parts

from measure.report.made_up import BINS, LENGTHS, comparison, curve

RATES = {"yarn": -0.05, "pi": 0.02, "ntk": 0.8}  # the last one breaks


@pytest.fixture(scope="module")
def made():
    return comparison(list(RATES), rates=list(RATES.values()))


def series(figure):
    """What is drawn of each extension, as the page has it, by its name."""
    stored = json.loads(json.dumps(figure.chart.to_json(), allow_nan=False))
    return {one["name"]: one for panel in stored["panels"] for one in panel["series"]}


def test_the_headline_is_the_change_of_every_candidate(made):
    """The change is the rate times two doublings; what breaks is at the edge."""
    rows = series(change(made))
    assert list(rows) == ["yarn", "pi", "ntk", "base model"]
    for name in ("yarn", "pi"):
        assert rows[name]["x"] == [pytest.approx(2 * RATES[name])]
        assert "cut" not in rows[name]
    assert [rows[name]["cut"][1] for name in ("ntk", "base model")] == [1, 1]
    assert rows["ntk"]["value"].startswith("+1.60")
    assert [row[0] for row in change(made).numbers] == ["yarn", "pi", "ntk", "bare"]


def test_losses_by_position_are_those_of_all_even_of_what_breaks(made):
    figure = loss_by_position(made)
    lines, (panel,) = series(figure), figure.chart.panels
    for name, rate in (*RATES.items(), ("base model", 1.0)):
        means = [sum(losses) / 3 for losses in zip(*(curve(rate, text) for text in range(3)), strict=True)]
        assert lines[name]["y"] == pytest.approx(means, rel=1e-5)
        assert "cut" not in lines[name]
    assert (panel.y.words, panel.log.kind) == ("loss, nats per token", "log")
    assert lines["yarn"]["x"] == [8 + 16 * n for n in range(BINS)]


def test_files_and_json_have_what_is_drawn(made, tmp_path):
    write_report(made, tmp_path)
    rows = list(csv.DictReader((tmp_path / "loss_by_position.csv").read_text().splitlines()))
    yarn = [row for row in rows if row["extension"] == "yarn"]
    changes = changes_by_position(made, made.candidates[1])
    assert [float(row["minus_base"]) for row in yarn] == [row.change.value for row in changes]
    assert [float(row["loss"]) for row in yarn] == [row.loss for row in changes]
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored == json.loads(json.dumps(as_json(made)))
    tables = {path.stem: list(csv.reader(path.read_text().splitlines())) for path in tmp_path.glob("*.csv")}
    assert {len(row) - len(head) for head, *rows in tables.values() for row in rows} == {0}
    drawn = {figure.name: (figure.head, len(figure.numbers)) for figure in page_of(made).figures}
    assert {name: (tuple(head), len(rows)) for name, (head, *rows) in tables.items()} == drawn
    first = stored["candidates"][1]
    assert [row["value"] for row in first["change_by_position"]] == [row.change.value for row in changes]
    assert first["change_by_length"]["256"] == first["change"]
    assert list(first["change_by_length"]) == [str(length) for length in LENGTHS]


def test_by_length_what_breaks_leaves_the_scale(made):
    figure = loss_by_length(made)
    lines, (panel,) = series(figure), figure.chart.panels
    assert lines["yarn"]["y"] == pytest.approx([0, -0.05, -0.1])
    assert [name for name, line in lines.items() if "cut" in line] == ["base model", "ntk"]
    assert (panel.x.kind, panel.x.at) == ("log", LENGTHS)
    assert panel.log.beyond(2.0) == 0


def test_shares_are_maps_of_the_scores(made):
    """A key is found where the rate is below a hundredth of the length."""
    rows = {row.name: [cell.share for cell in row.cells] for row in score_by_length(made, "passkey").chart.rows}
    assert rows == {"base model": [0, 1, 1], "yarn": [1, 1, 1], "pi": [1, 1, 1], "ntk": [0, 1, 1]}
    depths = score_by_depth(made, "passkey").chart
    assert {len(row.cells) for row in depths.rows} == {4 * len(LENGTHS)}
    assert (depths.groups, depths.columns[:4]) == ([("64", 4), ("128", 4), ("256", 4)], ["12%", "38%", "62%", "88%"])


def test_damage_is_an_interval_for_each(made):
    row, numbers = series(damage(made))["ntk"], {row[0]: row[1:] for row in damage(made).numbers}
    assert numbers["ntk"][0] == pytest.approx(0.045)  # 0.03 and 0.06
    low = max(numbers["ntk"][1], damage(made).chart.panels[0].x.low)
    assert (row["x"], row["low"]) == ([pytest.approx(0.045)], [pytest.approx(low, rel=1e-5)])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_no_numbers_are_drawn_as_what_they_are(bad):
    made = comparison(["yarn", "bad"], rates=[-0.05, bad])
    for figure in page_of(made).figures:
        if isinstance(figure.chart, Chart):
            json.dumps(figure.chart.to_json(), allow_nan=False)
    row = series(change(made))["bad"]
    assert row["value"] == ("no number" if math.isnan(bad) else "+∞")
    assert ("cut" in row) == math.isinf(bad)


def test_one_length_and_one_text():
    made = comparison(["yarn", "pi"], texts=1, lengths=(64,))
    names = [figure.name for figure in page_of(made).figures]
    assert names[:2] == ["change", "loss_by_position"]
    assert "loss_by_length" not in names
    assert change(made).title == "What does each extension do to texts of 64 tokens?"
    assert not any("low" in one for figure in headline(made) for one in series(figure).values())
    assert dict(page_of(made).facts)["texts"] == "1"


def test_where_the_base_model_could_not_be_measured_the_others_are_drawn(made):
    base, *others = made.candidates
    starved = replace(base, rows=tuple(row for row in base.rows if row.length != 256))
    found = replace(made, candidates=(starved, *others))
    figure = loss_by_position(found)
    assert len(series(figure)["yarn"]["y"]) == BINS
    assert "minus_base" in figure.head
    assert parts(found)[0].figures[0].name == "loss_by_length"
