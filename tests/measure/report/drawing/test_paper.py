"""Pictures on paper, read back from what matplotlib draws: the numbers, the words and the files."""

import math
import re
import sys
from xml.etree import ElementTree

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ropewalk.errors import InvalidValue, NotInstalled
from ropewalk.measure.report.comparison import page_of
from ropewalk.measure.report.drawing.build import map_panel, scatter
from ropewalk.measure.report.drawing.charts import (
    LIGHT,
    Axis,
    Chart,
    Panel,
    ReportFigure,
    ShareCell,
    ShareMap,
    ShareRow,
)
from ropewalk.measure.report.drawing.paper import draw, formats_of, write_pictures
from ropewalk.measure.report.figures import change, loss_by_length
from ropewalk.search.report import figures

from measure.report.drawing.made_up_lines import CALM, WILD, lines
from measure.report.made_up import HOSTILE, LENGTHS, LONG, comparison
from search.made_up_fit import fitted

pytestmark = pytest.mark.nightly


def picture(chart, name="made_up"):
    return draw(ReportFigure(name, "what it answers", "How to read it.", chart, ("extension",), ()))


def legend(drawn):
    return [text.get_text() for text in drawn.legends[0].get_texts()]


def test_lines_are_the_numbers_with_their_words():
    drawn = picture(lines(CALM, WILD))
    (axes,) = drawn.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("tokens", "loss")
    wild, calm = (line for line in axes.lines if len(line.get_xdata()) > 2)
    assert list(calm.get_xdata()) == list(CALM.x)
    assert list(calm.get_ydata()) == list(CALM.y)
    assert (calm.get_color(), wild.get_color()) == (LIGHT["c0"], LIGHT["c1"])
    assert legend(drawn) == ["wild   ▲ +10.24", "calm   0.00"]
    assert "trained length" in [text.get_text() for text in axes.texts]
    assert drawn.get_suptitle() == "What it answers"
    (band,) = axes.collections
    low, high = band.get_datalim(axes.transData).intervaly
    assert (low, high) == (-0.2, 0.05)


def test_lengths_are_on_a_logarithmic_axis_and_what_breaks_has_a_triangle():
    made = comparison(["yarn", "pi"], rates=[-0.05, 0.8])
    drawn = draw(loss_by_length(made))
    (axes,) = drawn.axes
    assert axes.get_xscale() == "log"
    assert [round(tick) for tick in axes.get_xticks()] == list(LENGTHS)
    assert axes.xaxis.get_major_formatter()(2048, None) == "2k"
    assert [line.get_marker() for line in axes.lines].count("^") == 2  # pi and the base model


def test_rows_have_their_names_numbers_and_intervals():
    made = comparison(["yarn", "pi"], rates=[-0.05, 0.02])
    drawn = draw(change(made))
    (axes,) = drawn.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["yarn", "pi", "base model"]
    assert axes.yaxis.get_inverted()
    words = [text.get_text() for text in axes.texts]
    assert words[:2] == ["−0.10 [−0.10, −0.10]   lower loss", "+0.04 [+0.04, +0.04]   worse"]
    assert words[2] == "+2.00 [+2.00, +2.00]   breaks"
    dots = {round(float(line.get_xdata()[0]), 3) for line in axes.lines if len(line.get_xdata()) == 1}
    assert {-0.1, 0.04} < dots


def test_dots_are_where_their_numbers_are():
    front = figures(fitted())[1]
    drawn = draw(front)
    (axes,) = drawn.axes
    places = [tuple(place) for dots in axes.collections for place in dots.get_offsets().tolist()]
    x, y = front.chart.panels[0].x, front.chart.panels[0].y
    assert sorted(places) == [(2.4, 0.1), (2.5, 0.1), (x.high, y.high)]
    assert legend(drawn)[0] == "no other is better in both"


def test_a_map_has_a_shade_for_every_number():
    cells = ((0.0, 0.5, 1.0), (1.0, 1.0, math.nan))
    panel = map_panel("a", 0, Axis("position", 0, 100, tokens=True), (0.0, 50.0, 100.0), cells)
    drawn = picture(Chart(kind="fields", panels=(panel._replace(marks=((50.0, ""),)),), shades=(0.0, 1.0)))
    axes, _ = drawn.axes
    (mesh,) = axes.collections
    assert mesh.get_array().filled(-1).tolist() == [[0.0, 0.5, 1.0], [1.0, 1.0, -1.0]]
    assert mesh.get_clim() == (0, 1)
    assert axes.yaxis.get_inverted()


def test_shares_have_their_numbers_and_columns():
    cells = tuple(ShareCell(share, "") for share in (0.0, 0.25, 1.0, math.nan))
    chart = ShareMap(
        rows=[ShareRow("a", 0, cells)], groups=[("1k", 2), ("2k", 2)], columns=["0%", "50%"] * 2, above="tokens",
        ends=("0%", "100%"),
    )  # fmt: skip
    axes, bar = picture(chart).axes
    assert [text.get_text() for text in axes.texts] == ["0%", "25%", "100%", "", "0%", "50%", "0%", "50%"]
    assert [(tick, text.get_text()) for tick, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)] == [
        (1, "1k"),  # in the middle of its columns
        (3, "2k"),
    ]
    assert [text.get_text() for text in bar.get_yticklabels()] == ["0%", "100%"]
    assert axes.texts[2].get_color() == LIGHT["paper"]


def test_panels_share_their_words():
    panels = tuple(Panel(Axis("across", 0, 9), Axis("up", 0, 1), name=f"panel {n}") for n in range(3))
    drawn = picture(Chart(kind="lines", panels=panels, columns=2))
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["panel 0", "panel 1", "panel 2", ""]
    assert (drawn.get_supxlabel(), drawn.get_supylabel()) == ("across", "up")


NAMES = (["a$b$c.json", "_mine/$\\frac{$.json"], ["<b>&\"'", "50%_{x}^"], ["\x01 résumé \u202e", HOSTILE])


def texts(path):
    return {element.text for element in ElementTree.parse(path).iter() if element.tag.endswith("text")}


@pytest.mark.parametrize("names", NAMES, ids=ascii)
def test_a_name_is_text_in_a_file_whatever_it_is(names, tmp_path):
    """Letters stay letters: no formula, no markup, nothing left out, and what cannot be shown is written out."""
    shown = ["".join(each if each.isprintable() else repr(each)[1:-1] for each in name) for name in names]
    for figure in page_of(comparison(names)).figures:
        write_pictures(figure, tmp_path, ["svg"])
        found = "\n".join(filter(None, texts(tmp_path / f"{figure.name}.svg")))
        assert all(name in found for name in shown), figure.name


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_losses_that_are_no_numbers_can_be_drawn(bad):
    for figure in page_of(comparison(["yarn", "bad"], rates=[-0.05, bad])).figures:
        FigureCanvasAgg(draw(figure)).draw()


def boxes(drawn):
    """The places of all names and numbers, in pixels."""
    FigureCanvasAgg(drawn).draw()
    found = [text for one in drawn.legends for text in one.get_texts()]
    for axes in drawn.axes:
        found += [*axes.texts, axes._left_title]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [label for tick in ticks for label in (tick.label1, tick.label2)]
    return [(text.get_text(), text.get_window_extent()) for text in found if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("names", [["yarn", "pi"], [f"{LONG}{n}" for n in range(9)]], ids=["few", "long"])
def test_words_do_not_touch(names):
    for figure in page_of(comparison(names)).figures:
        placed = boxes(draw(figure))
        for n, (words, box) in enumerate(placed):
            others = [other for other, place in placed[:n] if box.shrunk(0.9, 0.7).overlaps(place.shrunk(0.9, 0.7))]
            assert others == [], (figure.name, words)


def test_the_same_figure_is_the_same_file_in_every_format(tmp_path):
    figure = change(comparison(["yarn"]))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write_pictures(figure, tmp_path / folder, ("svg", "pdf", "png"))
    begins = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}
    for kind, begin in begins.items():
        first, second = ((tmp_path / folder / f"change.{kind}").read_bytes() for folder in ("a", "b"))
        assert first == second
        assert first.startswith(begin)


OWN = ("{http://www.w3.org/1999/xlink}href", "href", "src")


def test_a_picture_needs_nothing_beside_it(tmp_path):
    """No style sheet's variable and no file of others in an SVG; a PDF has its letters in it, as TrueType."""
    for figure in page_of(comparison(["yarn", "pi"])).figures:
        write_pictures(figure, tmp_path, ["svg", "pdf"])
        text = (tmp_path / f"{figure.name}.svg").read_text()
        assert "var(" not in text
        assert "@import" not in text
        assert all(place.startswith("#") for place in re.findall(r"url\(['\"]?([^)]*)", text))
        for element in ElementTree.fromstring(text).iter():
            assert element.tag.rpartition("}")[2] not in ("script", "foreignObject", "link")
            links = [value for name, value in element.attrib.items() if name in OWN]
            assert all(value.startswith(("#", "data:")) for value in links), links
            assert "font" not in element.get("style", "") or element.get("style").count("sans-serif")
        pdf = (tmp_path / f"{figure.name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf


def test_a_format_is_known_or_refused():
    assert formats_of("pdf, png") == ("pdf", "png")
    assert formats_of("") == ()
    with pytest.raises(InvalidValue, match=r"pictures must be .*got 'gif'; known: svg, pdf, png"):
        formats_of("gif")


def test_without_matplotlib_the_refusal_says_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotInstalled, match=r"matplotlib is not installed; .*pip install '\.\[pictures\]'"):
        formats_of("svg")
    assert formats_of("") == ()


def test_dots_off_the_scale_are_pale():
    dots = scatter(CALM._replace(low=(), high=()), Axis("", 0, 1024), Axis("", -0.05, 1))
    drawn = picture(Chart(kind="dots", panels=(Panel(Axis("", 0, 1024), Axis("", -0.05, 1), tuple(dots)),)))
    inside, edge = drawn.axes[0].collections
    assert (inside.get_alpha(), edge.get_alpha()) == (1.0, 0.35)
    assert {y for _, y in edge.get_offsets().tolist()} == {-0.05}
