"""What figures share: size, lines that differ also in grey, files, and images embedded in a page.

Figures are narrow and their letters large, so that they can be read on a phone.
"""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from ropewalk.folders import write_text
from ropewalk.notation import BARE

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e08e00", "#6a4c93", "#555555", "#008b8b", "#a0522d", "#c71585", "#6b8e23")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
WIDTH, HEIGHT, LEGEND_LINE = 4.6, 3.0, 0.17  # inches
LETTERS, SMALL = 9, 8  # points
DPI = 150
BASE = "base model"


class ReportFigure(NamedTuple):
    """A figure, its name, what it shows, and the numbers behind it."""

    name: str
    caption: str
    figure: Figure
    head: tuple[str, ...]
    numbers: tuple[tuple[Any, ...], ...]
    section: str = ""  # of the page
    shown: tuple[tuple[str, ...], ...] = ()  # rows under the same head, which the page shows as a table


def axes(across: str, up: str) -> tuple[Figure, Axes]:
    """A figure with one pair of axes."""
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    plot = figure.add_subplot()
    plot.set_xlabel(across, fontsize=LETTERS)
    plot.set_ylabel(up, fontsize=LETTERS)
    _plain(plot)
    return figure, plot


def panels(titles: Sequence[str], *, columns: int, height: float, alike: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure of small plots, row by row; `alike`: with shared axes, numbered at the edges only."""
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(WIDTH, rows * height + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=alike, sharey=alike, squeeze=False).flatten().tolist()
    for plot, title in zip(grid, titles, strict=False):
        plot.set_title(title, fontsize=SMALL)
        _plain(plot)
    for plot in grid[len(titles) :]:
        plot.remove()
    for plot in grid[max(0, len(titles) - columns) : len(titles)]:  # plots above a gap need numbers too
        plot.tick_params(labelbottom=True)
    return figure, grid[: len(titles)]


def stacked(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """A figure of plots one below the other, over the same places."""
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.3), layout="constrained")
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights).flatten().tolist()
    for plot in grid:
        _plain(plot)
    return figure, grid


def _plain(plot: Axes) -> None:
    plot.grid(alpha=0.25)
    plot.tick_params(labelsize=SMALL)


def styles() -> Iterator[dict[str, Any]]:
    """Lines that differ by dash and marker as well as by colour."""
    return (
        {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4, "linewidth": 1.4}
        for colour, dash, marker in zip(cycle(COLOURS), cycle(DASHES), cycle(MARKERS), strict=False)
    )


def lines() -> Iterator[dict[str, Any]]:
    """The same without markers, for curves of many points."""
    return ({**style, "marker": ""} for style in styles())


def mark(plot: Axes, length: float, *, colour: str = "black") -> None:
    """The trained length, as a thin dotted line."""
    plot.axvline(length, color=colour, linewidth=1, linestyle=(0, (1, 2)))


def legend(figure: Figure, plot: Axes, *, columns: int = 2) -> None:
    """Below the axes, where it takes no width; the figure grows by what it needs."""
    handles, labels = plot.get_legend_handles_labels()
    rows = sum(1 + label.count("\n") for label in labels) / columns
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + LEGEND_LINE * math.ceil(rows))
    # Long enough to tell one dash from another.
    form = {"handlelength": 3.5, "fontsize": SMALL, "frameon": False}
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **form)


def doubling(plot: Axes, lengths: Sequence[int]) -> None:
    """Lengths across, on a logarithmic scale."""
    plot.set_xscale("log", base=2)
    plot.set_xticks(list(lengths), [f"{length:,}" for length in lengths])
    plot.minorticks_off()


def embedded(drawn: ReportFigure, folder: Path) -> str:
    """A figure that was written to a folder, as a data URL."""
    return "data:image/png;base64," + base64.b64encode((folder / f"{drawn.name}.png").read_bytes()).decode()


def rendered(drawn: ReportFigure, kind: str) -> bytes:
    """A figure as the bytes of a file, the same for the same figure."""
    out = io.BytesIO()
    _show_names_literally(drawn.figure)
    with rc_context({"svg.hashsalt": drawn.name}):
        drawn.figure.savefig(out, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def written(drawn: ReportFigure, folder: Path) -> None:
    """A figure as PNG and SVG, and its numbers as CSV."""
    for kind in ("png", "svg"):
        (folder / f"{drawn.name}.{kind}").write_bytes(rendered(drawn, kind))
    rows = io.StringIO(newline="")
    csv.writer(rows, lineterminator="\n").writerows([drawn.head, *drawn.numbers])
    write_text(folder / f"{drawn.name}.csv", rows.getvalue())


def name_of(line: str) -> str:
    """What a candidate is called in figures and tables."""
    return BASE if line == BARE else line


def named(line: str) -> str:
    """A name for a legend: matplotlib leaves out those that begin with an underscore."""
    return f"\u200b{line}" if line.startswith("_") else name_of(line)


def _show_names_literally(figure: Figure) -> None:
    """A $ in a name begins no formula; only the numbers at the axes may be formulas."""
    both = [axis for plot in figure.axes for axis in (plot.xaxis, plot.yaxis)]
    numbers = {text for axis in both for text in axis.findobj(Text) if text is not axis.label}
    for text in set(figure.findobj(Text)) - numbers:
        text.set_parse_math(False)
        text.set_text("".join(map(_visible, text.get_text())))


def _visible(character: str) -> str:
    shown = character.isprintable() or character in ("\n", "\u200b")
    return character if shown else character.encode("unicode_escape").decode()
