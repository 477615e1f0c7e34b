"""Figures as pictures on paper, drawn by matplotlib: SVG, PDF and PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.errors import InvalidValue, not_installed
from ropewalk.measure.report.drawing.build import MINUS
from ropewalk.measure.report.drawing.charts import CALM, KNEE, LIGHT, Axis, Chart, Panel, ReportFigure, Series, ShareMap
from ropewalk.measure.report.drawing.names import shortened, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")
WIDTH, MARGIN, INCH, RESOLUTION = 9.6, 1.3, 100.0, 160  # inches, pixels of one, dots of one in a PNG
CAPTION_LETTERS, LETTERS = 40, 100  # letters of a name, and of all names side by side
DARK = 0.7  # the share from which a number is written in light letters
MOST_MARKED, AXIS_NUMBERS, MOST_CELLS = 12, 8, 24  # points with markers, numbers on an axis, cells with their number
SHAPES = "os^Dv"
MAPS = {"shade": "Blues", "harm": "Oranges"}
# Letters stay letters in SVG and PDF, names are no formulas, and a file is the same whenever it is written.
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ropewalk",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LIGHT["soft"],
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["soft"],
    "ytick.color": LIGHT["soft"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


def formats_of(text: str) -> tuple[str, ...]:
    """`pdf,png` as formats; refused where one is not known, or where matplotlib is not installed."""
    formats = tuple(filter(None, text.replace(" ", "").split(",")))
    for one in formats:
        if one not in FORMATS:
            raise InvalidValue("pictures", "formats, separated by commas", text, known=FORMATS)
    if formats:
        try:
            import matplotlib  # noqa: F401
        except ModuleNotFoundError as missing:
            raise not_installed(missing) from missing
    return formats


def write_pictures(figure: ReportFigure, folder: Path, formats: Sequence[str]) -> None:
    """A file in each format, named as the figure."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        drawn = draw(figure)
        for name in formats:
            undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(name)
            drawn.savefig(folder / f"{figure.name}.{name}", format=name, dpi=RESOLUTION, metadata=undated)


def draw(figure: ReportFigure) -> Figure:
    """The figure with its title, as matplotlib has it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Picture

    with mpl.rc_context(STYLE):
        picture = Picture(layout="constrained")
        if isinstance(figure.chart, ShareMap):
            _shares(picture, figure.chart)
        else:
            _panels(picture, figure.chart)
        picture.suptitle(figure.title[:1].upper() + figure.title[1:], x=0.01, ha="left", weight="bold")
    return picture


def _panels(picture: Figure, chart: Chart) -> None:
    count = len(chart.panels)
    columns = min(chart.columns, max(count, 1))
    lines = -(-count // columns)
    tall = 26.0 * len(chart.panels[0].series) if chart.kind == "rows" else chart.height
    picture.set_size_inches(WIDTH, lines * tall / INCH + MARGIN)
    shared = chart.kind == "dots" and not chart.bare and columns > 1
    grid = picture.subplots(lines, columns, squeeze=False, sharey=shared)
    for place, axes in enumerate(grid.flat):
        if place < count:
            _panel(axes, chart, chart.panels[place], columns)
        else:
            axes.set_visible(False)
    if count > 1 and not chart.bare:
        picture.supxlabel(chart.panels[0].x.words, fontsize=9)
        picture.supylabel(chart.panels[0].y.words, fontsize=9)
    if chart.kind == "fields":
        picture.colorbar(grid.flat[0].collections[0], ax=grid, shrink=0.6, pad=0.01)
    if chart.legend and chart.kind != "rows":
        _legend(picture, chart)


def _panel(axes: Axes, chart: Chart, panel: Panel, columns: int) -> None:
    _scale(axes, "x", panel.x, max(2, AXIS_NUMBERS // columns))
    _scale(axes, "y", panel.y, AXIS_NUMBERS)
    if panel.name:
        name = shortened([panel.name], min(CAPTION_LETTERS, LETTERS // columns))[0]
        axes.set_title(f"{name}\n{panel.note}".strip(), fontsize=9, loc="left")
    if len(chart.panels) > 1:
        axes.set(xlabel="", ylabel="")
    if chart.bare:
        axes.tick_params(labelleft=False, labelbottom=False, length=0)
    if chart.kind == "rows":
        _named_rows(axes, panel)
    if panel.cells:
        low, high = chart.shades
        edges = range(len(panel.cells) + 1)
        across = [edge - 0.5 for edge in edges]
        axes.pcolormesh(panel.edges, across, panel.cells, cmap="Blues", vmin=low, vmax=high or 1.0)
        axes.invert_yaxis()
        axes.grid(visible=False)
    many = sum(bool(one.low) for one in panel.series) > CALM
    for one in panel.series:
        _series(axes, one, banded=not many)
    for value, words in panel.marks:
        axes.axvline(value, color=LIGHT["soft"], linestyle=":", linewidth=1)
        side = "center" if chart.kind == "rows" else "left"
        axes.annotate(
            words, (value, 1), (0 if side == "center" else 3, 2), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha=side, fontsize=8, color=LIGHT["soft"],
        )  # fmt: skip


def _scale(axes: Axes, side: str, axis: Axis, most: int) -> None:
    """Limits, kind, words and about so many numbers of one axis."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, MultipleLocator, NullLocator

    along, scale = (axes.xaxis, axes.set_xscale) if side == "x" else (axes.yaxis, axes.set_yscale)
    if axis.kind == "log":
        scale("log", base=2)
    elif axis.kind == "signed log":
        scale("asinh", linear_width=KNEE)
    if axis.at:
        along.set_major_locator(FixedLocator([value for value in axis.at if not axis.beyond(value)], nbins=most))
        along.set_minor_locator(NullLocator())
    elif axis.tokens:
        along.set_major_locator(MultipleLocator(2.0 ** math.ceil(math.log2((axis.high - axis.low) / most))))
    else:
        along.set_major_locator(MaxNLocator(most, integer=axis.whole, steps=[1, 2, 2.5, 5, 10]))
    along.set_major_formatter(FuncFormatter(lambda value, _: _number(value, tokens=axis.tokens)))
    axes.set(**{f"{side}lim": (axis.low, axis.high), f"{side}label": axis.words})


def _number(value: float, *, tokens: bool) -> str:
    return f"{value / 1024:g}k" if tokens and value >= 1024 else f"{value:g}".replace("-", MINUS)


def _series(axes: Axes, one: Series, *, banded: bool) -> None:
    """The interval, the marks, and a triangle where they leave the scale."""
    style, x, y = one.style, _finite(one.x), _finite(one.y)
    how: dict[str, Any] = {"color": LIGHT[style["colour"]], "alpha": one.alpha, "zorder": 3}
    marker, sideways = SHAPES[style["marker"]], one.look == "row"
    if one.look == "dots":
        areas = [(1.4 * size) ** 2 for size in one.sizes] or 20.0
        axes.scatter(x, y, s=areas, marker=marker, linewidths=0, **how)
    elif sideways:
        axes.hlines(one.y[: len(one.low)], one.low, one.high, linewidth=4, **{**how, "alpha": 0.4})
        axes.plot(x, y, marker=marker, linestyle="", **how)
    else:
        wide = {"thin": 0.9, "stair": 1.0}.get(one.look, 2.4 if one.key < 0 else 1.6)
        dash = (0, style["dash"]) if style["dash"] and one.look in ("line", "thin") else "-"
        marked = marker if one.look == "line" and len(one.x) <= MOST_MARKED else ""
        axes.plot(x, y, linestyle=dash, linewidth=wide, marker=marked, markersize=4, **how)
        if one.low and banded:
            low, high = ([e if math.isfinite(e) else v for e, v in zip(ends, y, strict=True)] for ends in one[4:6])
            axes.fill_between(x, low, high, linewidth=0, **{**how, "alpha": 0.15})
    if one.cut and not (one.look != "row" and axes.get_yscale() != "linear"):
        place, side = one.cut
        at, frame = (float(side > 0), place), axes.get_yaxis_transform()
        at, frame = (at, frame) if sideways else ((place, at[0]), axes.get_xaxis_transform())
        shape = {(True, 1): ">", (True, -1): "<", (False, 1): "^", (False, -1): "v"}[sideways, side]
        axes.plot(*at, marker=shape, transform=frame, clip_on=False, **how)


def _finite(values: Sequence[float]) -> list[float]:
    return [value if math.isfinite(value) else math.nan for value in values]


def _named_rows(axes: Axes, panel: Panel) -> None:
    """Names at the left, numbers and notes at the right."""
    names = shortened([one.name for one in panel.series], CAPTION_LETTERS)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelcolor=LIGHT["ink"])
    axes.invert_yaxis()
    axes.set_ylabel("")
    for one in panel.series:
        words = "   ".join(filter(None, (one.value, visible(one.note))))
        axes.annotate(
            words,
            (1, one.y[0]),
            (8, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )


def _legend(picture: Figure, chart: Chart) -> None:
    """Names with their numbers beside the panels, in the order of the page."""
    from matplotlib.lines import Line2D

    names, handles = shortened([one.name for one in chart.legend], CAPTION_LETTERS), []
    for one in chart.legend:
        style, dotted = one.style, one.look == "dots"
        dash: Any = "" if dotted else (0, style["dash"]) if style["dash"] else "-"
        marker = SHAPES[style["marker"]] if dotted else ""
        handles.append(Line2D([], [], color=LIGHT[style["colour"]], linestyle=dash, marker=marker))
    # A label that begins with an underscore would be left out, so names are written in afterwards.
    legend = picture.legend(handles, ["-"] * len(names), loc="outside right upper", handlelength=2.6)
    for text, name, one in zip(legend.get_texts(), names, chart.legend, strict=True):
        text.set_text(f"{name}   {one.value}".rstrip())


def _shares(picture: Figure, chart: ShareMap) -> None:
    """A table in shades, with the number in each cell where there is room."""
    shares, count = [[cell.share for cell in row.cells] for row in chart.rows], sum(size for _, size in chart.groups)
    picture.set_size_inches(WIDTH, 0.26 * len(shares) + MARGIN)
    axes = picture.subplots()
    mesh = axes.pcolormesh(shares, cmap=MAPS[chart.shade], vmin=0, vmax=1, edgecolors=LIGHT["paper"], linewidth=1.5)
    axes.grid(visible=False)
    axes.invert_yaxis()
    axes.set_yticks([n + 0.5 for n in range(len(shares))], shortened([row.name for row in chart.rows], CAPTION_LETTERS))
    first, middles = 0, []
    for _, size in chart.groups:
        middles.append(first + size / 2)
        first += size
    axes.set_xticks(middles, [name for name, _ in chart.groups])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, labelcolor=LIGHT["ink"])
    axes.spines[:].set_visible(False)
    axes.set_xlabel(chart.above)
    if count <= MOST_CELLS:
        for n, row in enumerate(chart.rows):
            for column, cell in enumerate(row.cells):
                colour = LIGHT["paper" if cell.share > DARK else "ink"]
                axes.text(column + 0.5, n + 0.5, cell.text, ha="center", va="center", fontsize=7, color=colour)
        for place, name in enumerate(chart.columns):
            axes.text(place + 0.5, len(shares) + 0.1, name, ha="center", va="top", fontsize=7, color=LIGHT["soft"])
    bar = picture.colorbar(mesh, ax=axes, pad=0.01, aspect=12)
    bar.set_ticks([0, 1], labels=list(chart.ends))
