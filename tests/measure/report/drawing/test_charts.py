"""The other drawings, read back: intervals, shares, maps, panels and dots."""

import math

import pytest

from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.drawing.dots import Dot, DotChart, DotGroup, dot_chart
from ropewalk.measure.report.drawing.fields import Field, FieldMap, field_map
from ropewalk.measure.report.drawing.figure import NARROW, WIDE
from ropewalk.measure.report.drawing.intervals import IntervalChart, IntervalRow, interval_chart
from ropewalk.measure.report.drawing.panels import Panel, PanelChart, panel_chart
from ropewalk.measure.report.drawing.shares import ShareCell, ShareMap, ShareRow, share_map

from measure.report.drawing.svg import axis, line, of_class, parsed, points, series

BOTH = pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
ROWS = (
    IntervalRow("good", 0, Estimate(-0.1, -0.2, -0.05, 8), "better"),
    IntervalRow("bad", 1, Estimate(0.1, 0.0, 0.2, 8)),
    IntervalRow("broken", 2, Estimate(4.0, 3.0, 5.0, 8), broken=True),
    IntervalRow("lost", 3, Estimate(math.nan, math.nan, math.nan, 0)),
    IntervalRow("one text", 4, Estimate(0.05, -math.inf, math.inf, 1)),
)


@BOTH
def test_intervals_are_where_their_numbers_are(canvas):
    root = parsed(interval_chart(IntervalChart(rows=ROWS, across="change", zero="base"), canvas, ""))
    across = axis(root, upwards=False)
    for row in ROWS[:2]:
        (bar,) = of_class(series(root, row.key), "interval")
        assert across(float(bar.get("x1"))) == pytest.approx(row.estimate.low, abs=2e-3)
        assert across(float(bar.get("x2"))) == pytest.approx(row.estimate.high, abs=2e-3)
        (dot,) = of_class(series(root, row.key), "marker")
        corners = [x for x, _ in points(dot.get("d"))]
        assert across((min(corners) + max(corners)) / 2) == pytest.approx(row.estimate.value, abs=5e-3)
    (zero,) = of_class(root, "zero")
    assert across(float(zero.get("x1"))) == pytest.approx(0, abs=1e-3)


@BOTH
def test_a_broken_row_has_a_mark_at_the_edge_and_its_number(canvas):
    root = parsed(interval_chart(IntervalChart(rows=ROWS, across="change", zero="base"), canvas, ""))
    assert [len(of_class(series(root, key), "cut")) for key in range(5)] == [0, 0, 1, 0, 0]
    words = [of_class(series(root, key), "value")[0].text for key in range(5)]
    assert words == ["−0.10 [−0.20, −0.05]", "+0.10 [0.00, +0.20]", "+4.00 [+3.00, +5.00]", "no number", "+0.05"]
    assert of_class(series(root, 3), "marker") == of_class(series(root, 4), "interval") == []


@BOTH
def test_one_wide_interval_does_not_hide_the_rest(canvas):
    wide = (*ROWS[:2], IntervalRow("two texts", 5, Estimate(0.0, -30.0, 30.0, 2)))
    root = parsed(interval_chart(IntervalChart(rows=wide, across="change", zero="base"), canvas, ""))
    across = axis(root, upwards=False)
    assert across(float(of_class(series(root, 5), "interval")[0].get("x2"))) < 1


@BOTH
def test_shares_are_shades(canvas):
    cells = tuple(ShareCell(share, f"{share} of it") for share in (0.0, 0.25, 1.0, math.nan))
    chart = ShareMap(
        rows=[ShareRow("a", 0, cells)], groups=[("1k", 2), ("2k", 2)], columns=["0%", "50%"] * 2, above="tokens",
        legend=("0%", "100%"),
    )  # fmt: skip
    root = parsed(share_map(chart, canvas, ""))
    shades = of_class(series(root, 0), "shade")
    assert [float(cell.get("fill-opacity")) for cell in shades] == [0, 0.25, 1]
    assert [cell[0].text for cell in shades] == ["0.0 of it", "0.25 of it", "1.0 of it"]
    assert len(of_class(series(root, 0), "hole")) == 1
    assert [cell.text for cell in of_class(root, "cell")] == ["0%", "25%", "100%"]
    (hit,), (name,) = of_class(series(root, 0), "hit"), of_class(series(root, 0), "name")
    top, bottom = float(hit.get("y")), float(hit.get("y")) + float(hit.get("height"))
    ends = [float(name.get("y")), *(float(cell.get("y")) + float(cell.get("height")) for cell in shades)]
    assert all(top < end <= bottom for end in ends)  # a pointer anywhere at the row is heard


@BOTH
def test_a_map_has_a_shade_for_every_number(canvas):
    """The numbers 0, 0.5 and 1 in two layers: none, half and all of the colour, each at its place."""
    field = Field("a", 0, (0.0, 50.0, 100.0), ((0.0, 0.5, 1.0), (1.0, 1.0, math.nan)))
    root = parsed(field_map(FieldMap(fields=[field], across="position", what="share", trained_len=50), canvas, ""))
    group = series(root, 0)
    by_shade = {
        float(path.get("fill-opacity")): path.get("d").count("M")
        for path in group.iter()
        if "shade" in path.get("class", "")
    }
    assert by_shade == {0.5: 1, 1.0: 3}
    left, _, right, _ = map(float, group.get("data-box").split())
    (trained,) = of_class(root, "marked")
    assert float(trained.get("x1")) == pytest.approx((left + right) / 2, abs=1)
    assert group.get("data-values") == "[[0.0,0.5,1.0],[1.0,1.0,null]]"


@BOTH
def test_panels_share_their_axes(canvas):
    x = tuple(float(n) for n in range(0, 200, 10))
    panels = [
        Panel(f"p{n}", n, x, tuple(n + v / 200 for v in x), tuple(n - 1 for _ in x), tuple(n + 2 for _ in x))
        for n in range(3)
    ]
    root = parsed(panel_chart(PanelChart(panels=panels, columns=3, across="tokens", up="logit"), canvas, ""))
    up = axis(series(root, 0), upwards=True)
    assert [up(y) for _, y in line(series(root, 0))] == pytest.approx(panels[0].y, abs=0.03)
    if canvas is WIDE:
        assert [up(y) for _, y in line(series(root, 2))] == pytest.approx(panels[2].y, abs=0.03)


@BOTH
def test_dots_and_the_stair_are_where_their_numbers_are(canvas):
    dots = (Dot(1.0, 0.2, "one"), Dot(2.0, 0.1, "two"), Dot(9.0, 0.15, "far"))
    chart = DotChart(
        groups=[DotGroup("g", 0, dots)], stair=[(1.0, 0.2), (2.0, 0.1)], stair_name="best", x=(0.5, 3.0), y=(0.0, 0.3),
        across="loss", up="harm",
    )  # fmt: skip
    root = parsed(dot_chart(chart, canvas, ""))
    across, up = axis(root, upwards=False), axis(root, upwards=True)

    def middle(path):
        xs, ys = zip(*points(path.get("d")), strict=True)
        return across((min(xs) + max(xs)) / 2), up((min(ys) + max(ys)) / 2)

    drawn = {path[0].text: middle(path) for path in of_class(root, "dot")}
    assert drawn["one"] == pytest.approx((1.0, 0.2), abs=0.02)
    assert drawn["two"] == pytest.approx((2.0, 0.1), abs=0.02)
    assert drawn["far"][0] == pytest.approx(3.0, abs=0.02)  # at the edge
    assert "3, 1 off the scale" in [note.text for note in of_class(root, "note")]
    stair = next(path for path in of_class(root, "stair") if path.get("d"))
    assert [(across(x), up(y)) for x, y in points(stair.get("d"))][:3] == [
        pytest.approx(place, abs=0.02) for place in ((1.0, 0.2), (2.0, 0.2), (2.0, 0.1))
    ]
