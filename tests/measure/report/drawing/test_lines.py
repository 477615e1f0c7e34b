"""A line chart says what its numbers are: read back from its pixels, by the labels of its axes."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from ropewalk.measure.report.drawing.figure import NARROW, WIDE
from ropewalk.measure.report.drawing.lines import ChartLine, LineChart, line_chart, spread

from measure.report.drawing.svg import axis, classes, line, of_class, parsed, points, series

X = tuple(float(x) for x in range(0, 1025, 64))
CALM = ChartLine("calm", 0, X, tuple(-0.1 + 0.0001 * x for x in X), tuple(-0.2 for _ in X), tuple(0.05 for _ in X))
WILD = ChartLine("wild", 1, X, tuple(0.01 * x for x in X), broken=True)


def chart(*lines, **more):
    return LineChart(lines=lines, across="tokens", up="loss", trained_len=512, to=1024, signed=True, **more)


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pixels_are_the_numbers(canvas):
    root = parsed(line_chart(chart(CALM, WILD), canvas, "what it shows"))
    up, across = axis(root, upwards=True), axis(root, upwards=False)
    drawn = line(series(root, 0))
    assert [across(x) for x, _ in drawn] == pytest.approx(X, abs=2)
    assert [up(y) for _, y in drawn] == pytest.approx(CALM.y, abs=5e-4)
    band = points(of_class(series(root, 0), "band")[0].get("d"))
    assert [up(y) for _, y in band] == pytest.approx([*CALM.high, *CALM.low], abs=5e-4)
    assert root.get("aria-label") == "what it shows"


@pytest.mark.parametrize(("bands", "many"), [(0, False), (2, False), (3, True)])
def test_more_bands_than_two_are_too_many_to_be_shown_at_once(bands, many):
    """Lines without a band do not count."""
    lines = [CALM._replace(name=f"calm {key}", key=key) for key in range(bands)]
    lines += [WILD._replace(name=f"wild {key}", key=key) for key in range(bands, 5)]
    (group,) = of_class(parsed(line_chart(chart(*lines), WIDE, "")), "lines")
    assert ("many" in classes(group)) is many


def test_the_dotted_line_is_the_trained_length():
    root = parsed(line_chart(chart(CALM), WIDE, ""))
    (dotted,) = of_class(root, "dotted")
    assert axis(root, upwards=False)(float(dotted.get("x1"))) == pytest.approx(512, abs=2)


def test_what_breaks_does_not_set_the_scale_but_ends_at_its_edge_with_a_mark():
    root = parsed(line_chart(chart(CALM, WILD), WIDE, ""))
    top = max(float(element.text.replace("−", "-")) for element in of_class(root, "tick") if "end" in classes(element))
    assert top < 0.1
    (cut,) = of_class(root, "cut")
    assert cut in list(series(root, 1))
    assert of_class(series(root, 1), "value")[0].text == "▲ +10.24"
    assert of_class(series(root, 0), "value")[0].text == "0.00"
    # The mark stands where the line leaves: at about 0.08 / 0.01 tokens.
    assert axis(root, upwards=False)(points(cut.get("d"))[1][0]) == pytest.approx(0.02 / 0.01 + 2.2, abs=8)


def test_a_logarithmic_axis_across_has_no_0():
    by_distance = ChartLine(
        "a", 0, (0.0, 1.0, 2.0, 512.0), (1.0, 0.5, 0.25, 0.1), (0.9, 0.4, 0.2, 0.0), (1.1, 0.6, 0.3, 0.2)
    )
    root = parsed(line_chart(chart(by_distance, across_log=True), WIDE, ""))
    drawn = line(series(root, 0))
    left, _, right, _ = map(float, of_class(root, "lines")[0].get("data-plot").split())
    assert len(drawn) == 3
    assert [x for x, _ in drawn] == pytest.approx(
        [left, left + (right - left) / 10, left + 0.9 * (right - left)], abs=2
    )


def test_a_logarithmic_drawing_shows_what_breaks():
    root = parsed(line_chart(chart(CALM, WILD, log="signed log"), WIDE._replace(log=True), ""))
    assert of_class(root, "cut") == []
    assert of_class(series(root, 1), "value")[0].text == "+10.24"


def test_where_all_break_they_set_the_scale():
    root = parsed(line_chart(chart(WILD), WIDE, ""))
    assert of_class(root, "cut") == []


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
def test_missing_and_infinite_numbers_have_gaps_and_marks(canvas):
    gap = ChartLine("gap", 0, X, tuple(math.nan if 4 < n < 8 else 0.1 for n in range(len(X))))
    none = ChartLine("none", 1, X, (math.nan,) * len(X))
    infinite = ChartLine("infinite", 2, X, tuple(math.inf if n > 8 else 0.05 for n in range(len(X))))
    svg = line_chart(chart(gap, none, infinite), canvas, "")
    root = parsed(svg)
    assert "nan" not in str(svg).lower()
    assert 'inf"' not in str(svg)
    assert next(element for element in series(root, 0).iter() if "line" in classes(element)).get("d").count("M") == 2
    assert [of_class(series(root, key), "value")[0].text for key in range(3)] == ["+0.10", "-", "▲ ∞"]


def test_the_script_has_the_numbers_as_they_are_written():
    root = parsed(line_chart(chart(CALM), WIDE, ""))
    across = axis(root, upwards=False)
    for (pixel, number, words), x, y in zip(json.loads(series(root, 0).get("data-points")), X, CALM.y, strict=True):
        assert across(pixel) == pytest.approx(x, abs=2)
        assert number == x
        assert float(words.replace("−", "-")) == pytest.approx(y, abs=0.0051)


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("count", [2, 9, 20])
def test_labels_do_not_touch(canvas, count):
    lines = [ChartLine(f"method {n}", n, X, tuple(0.001 * n for _ in X)) for n in range(count)]
    root = parsed(line_chart(chart(*lines), canvas, ""))
    places = sorted(float(element.get("y")) for element in of_class(root, "name"))
    assert len(places) == count
    assert all(b - a >= 17.9 for a, b in pairwise(places))
    height = float(root.get("viewBox").split()[3])
    assert places[-1] < height


def test_a_label_ends_before_its_number():
    """Letters of names are about 7.3 pixels wide, and numbers end at the right edge."""
    long = ChartLine("self_extend:window=4096", 0, X, tuple(0.001 for _ in X))
    root = parsed(line_chart(chart(long, CALM), WIDE, ""))
    (name,) = [element for element in of_class(root, "name") if element.text == long.name]
    (value,) = [element for element in of_class(root, "value") if element.get("y") == name.get("y")]
    assert float(name.get("x")) + 7.3 * len(name.text) < float(value.get("x")) - 7.3 * len(value.text)


@given(st.lists(st.floats(0, 300), max_size=20), st.floats(1, 20))
def test_places_are_apart_in_order_and_within(wanted, gap):
    places = spread(wanted, gap, 0, 300)
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    ranked = [places[n] for n in order]
    assert all(b - a >= gap - 1e-6 for a, b in pairwise(ranked))
    if gap * (len(wanted) - 1) <= 300:
        assert all(-1e-6 <= place <= 300 + 1e-6 for place in places)
    alone = [n for n in order if all(abs(wanted[n] - wanted[m]) > gap * len(wanted) for m in order if m != n)]
    assert all(abs(places[n] - wanted[n]) < gap * len(wanted) for n in alone)
