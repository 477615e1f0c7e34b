"""Figures of a comparison, read back from their pixels: they are the measured numbers."""

import csv
import json
import math
from dataclasses import replace

import pytest

from ropewalk.measure.compare.changes import changes_by_position
from ropewalk.measure.report.comparison import as_json, page_of, write_report
from ropewalk.measure.report.drawing.figure import NARROW, WIDE
from ropewalk.measure.report.figures import (
    change,
    damage,
    figures,
    headline,
    keys_of,
    loss_by_length,
    loss_by_position,
    score_by_depth,
    score_by_length,
)

from measure.report.drawing.svg import axis, line, of_class, parsed, series
from measure.report.made_up import BINS, HOSTILE, LENGTHS, LONG, comparison, curve

RATES = {"yarn": -0.05, "pi": 0.02, "ntk": 0.8}  # the last one breaks


@pytest.fixture(scope="module")
def made():
    return comparison(list(RATES), rates=list(RATES.values()))


def drawn(figure, canvas=WIDE):
    return parsed(figure.draw(canvas, figure.title))


def test_the_headline_is_the_change_of_every_candidate(made):
    """The change is the rate times two doublings; what breaks is at the edge."""
    root = drawn(change(made))
    across = axis(root, upwards=False)
    for name in ("yarn", "pi"):
        (dot,) = of_class(series(root, keys_of(made)[name]), "marker")
        x = [float(pair.split()[0]) for pair in dot.get("d").strip("MZ").split("L")]
        assert across((min(x) + max(x)) / 2) == pytest.approx(2 * RATES[name], abs=2e-3)
    for line_ in ("ntk", "bare"):
        group = series(root, keys_of(made)[line_])
        assert len(of_class(group, "cut")) == 1
    assert of_class(series(root, 2), "value")[0].text.startswith("+1.60")
    rows = [row[0] for row in change(made).numbers]
    assert rows == ["yarn", "pi", "ntk", "bare"]


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
def test_losses_by_position_are_differences_from_the_base_model(made, canvas):
    root = drawn(loss_by_position(made), canvas)
    up = axis(root, upwards=True)
    for name in ("yarn", "pi"):
        values = [up(y) for _, y in line(series(root, keys_of(made)[name]))]
        worked_out = [mine - base for mine, base in zip(curve(RATES[name], 0), curve(1.0, 0), strict=True)]
        assert values == pytest.approx(worked_out, abs=0.02)
    assert {round(up(y), 2) + 0.0 for _, y in line(series(root, -1))} == {0.0}


def test_files_and_json_have_what_is_drawn(made, tmp_path):
    write_report(made, tmp_path)
    rows = list(csv.DictReader((tmp_path / "loss_by_position.csv").read_text().splitlines()))
    yarn = [row for row in rows if row["extension"] == "yarn"]
    changes = changes_by_position(made, made.candidates[1])
    assert [float(row["minus_base"]) for row in yarn] == [row.change.value for row in changes]
    assert [float(row["loss"]) for row in yarn] == [row.loss for row in changes]
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored == json.loads(json.dumps(as_json(made)))
    tables = [list(csv.reader(path.read_text().splitlines())) for path in tmp_path.glob("*.csv")]
    assert {len(row) - len(head) for head, *rows in tables for row in rows} == {0}
    first = stored["candidates"][1]
    assert [row["value"] for row in first["change_by_position"]] == [row.change.value for row in changes]
    assert first["change_by_length"]["256"] == first["change"]
    assert list(first["change_by_length"]) == [str(length) for length in LENGTHS]


def test_by_length_what_breaks_leaves_the_scale(made):
    root = drawn(loss_by_length(made))
    up = axis(root, upwards=True)
    assert [up(y) for _, y in line(series(root, 0))] == pytest.approx([0, -0.05, -0.1], abs=1e-3)
    assert [len(of_class(series(root, key), "cut")) for key in (0, 1, 2, -1)] == [0, 0, 1, 1]
    log = parsed(loss_by_length(made).draw(WIDE._replace(log=True), ""))
    assert of_class(log, "cut") == []


def test_shares_are_maps_of_the_scores(made):
    """A key is found where the rate is below a hundredth of the length."""
    root = drawn(score_by_length(made, "passkey"))
    shades = {
        name: [float(cell.get("fill-opacity")) for cell in of_class(series(root, key), "shade")]
        for name, key in keys_of(made).items()
    }
    assert shades == {"bare": [0, 1, 1], "yarn": [1, 1, 1], "pi": [1, 1, 1], "ntk": [0, 1, 1]}
    root = drawn(score_by_depth(made, "passkey"))
    assert len(of_class(series(root, 0), "shade")) == 4 * len(LENGTHS)


def test_damage_is_an_interval_for_each(made):
    root = drawn(damage(made))
    across = axis(root, upwards=False)
    (bar,) = of_class(series(root, 2), "interval")
    numbers = {row[0]: row[1:] for row in damage(made).numbers}
    assert numbers["ntk"][0] == pytest.approx(0.045)  # 0.03 and 0.06
    assert across(float(bar.get("x1"))) == pytest.approx(max(numbers["ntk"][1], across(205)), abs=5e-3)


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(
    "names", [["a", "b"], [f"{LONG}{n}" for n in range(9)], [f"m{n}" for n in range(20)], [HOSTILE, "a & b"]]
)
@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_figure_can_be_drawn_for_any_names(names, canvas):
    for figure in page_of(comparison(names)).figures:
        root = drawn(figure, canvas)
        shown = [element.get("data-name") for element in root.iter() if element.get("data-name")]
        joined = ", ".join(shown)
        assert all(name in joined for name in names)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_no_numbers_are_drawn_as_what_they_are(bad):
    made = comparison(["yarn", "bad"], rates=[-0.05, bad])
    for figure in page_of(made).figures:
        for canvas in (WIDE, NARROW, WIDE._replace(log=True)):
            svg = str(figure.draw(canvas, ""))
            root = parsed(svg)
            for element in root.iter():
                for name in ("d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "fill-opacity"):
                    assert not {"nan", "inf"} & set((element.get(name) or "").replace("-", " ").split())
    root = drawn(change(made))
    words = of_class(series(root, 1), "value")[0].text
    assert words == ("no number" if math.isnan(bad) else "+∞")


def test_one_length_and_one_text():
    made = comparison(["yarn", "pi"], texts=1, lengths=(64,))
    names = [figure.name for figure in page_of(made).figures]
    assert names[:2] == ["change", "loss_by_position"]
    assert "loss_by_length" not in names
    assert change(made).title == "What does each extension do to texts of 64 tokens?"
    for figure in headline(made):
        root = drawn(figure)
        assert of_class(root, "interval") == of_class(root, "band") == []
    assert page_of(made).title.endswith("on 1 text of stdlib")


def test_where_the_base_model_could_not_be_measured_the_losses_themselves_are_drawn(made):
    base, *others = made.candidates
    starved = replace(base, rows=tuple(row for row in base.rows if row.length != 256))
    found = replace(made, candidates=(starved, *others))
    root = drawn(loss_by_position(found))
    assert of_class(root, "unit")[0].text == "loss, nats per token"
    assert len(line(series(root, 0))) == BINS
    assert "minus_base" in loss_by_position(found).head
    assert figures(found)[0].name == "loss_by_length"
