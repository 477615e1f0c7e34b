"""The picture of a leaderboard: the loss against all other columns, side by side on one axis of losses.

All panels have the same heights, so each line is named once, at the end of its height.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from ropewalk.measure.compare.leaderboard import Leaderboard, RankedEntry
from ropewalk.measure.report.drawing.axes import Kind, legible, spanning, ticks
from ropewalk.measure.report.drawing.elements import element, path, text
from ropewalk.measure.report.drawing.figure import Canvas, ReportFigure, drawing
from ropewalk.measure.report.drawing.lines import spread
from ropewalk.measure.report.drawing.names import name_of, shortened
from ropewalk.measure.report.drawing.plot import LETTER, Plot, grid
from ropewalk.measure.report.drawing.styles import marker, style_of

MARKERS = {"static": 1, "plugin": 0, "here": 3}  # a square, a disc, a diamond
RUNS = {"static": "vLLM as it is", "plugin": "vLLM with the plugin", "here": "Ropewalk alone"}
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
ABOVE = 2  # the triangle of a loss beyond the scale
WORST = 1.0  # nats above the lowest loss: the scale ends here
HEIGHT, LABEL, SIDE, TOP = 340.0, 17.0, 236.0, 62.0
QUESTION = "Which extensions does no other one beat?"
CAPTION = (
    "Full marks and names: no other line is as good in every column and better in one. Pale marks: another one is. A"
    " triangle is above the scale. Square: runs in vLLM as it is; disc: with Ropewalk's plugin; diamond: here alone."
)


class BoardColumn(NamedTuple):
    """One panel: its heading, and the figure of every line."""

    heading: str
    better: str
    values: tuple[float, ...]
    kind: Kind = "even"


class PlottedColumn(NamedTuple):
    """A panel and its place on the canvas."""

    panel: BoardColumn
    plot: Plot


def picture(board: Leaderboard, keys: dict[str, int]) -> ReportFigure:
    """The figure, with its numbers."""
    head = ("extension", "loss", "right", "harm", "key_share", "time", "cache_bytes", "beaten_by")
    numbers = tuple(
        (
            name_of(entry.candidate.line),
            entry.columns.loss,
            entry.right.value if entry.right else None,
            entry.harm.value if entry.harm else None,
            entry.columns.key_share,
            entry.candidate.slowdown,
            entry.columns.cache_bytes,
            entry.beaten_by,
        )
        for entry in board.entries
    )
    return ReportFigure("leaderboard", QUESTION, CAPTION, partial(_drawn, board, keys), head, numbers)


def columns(entries: Sequence[RankedEntry]) -> list[BoardColumn]:
    """The panels; those that were not measured are left out."""
    unit, step = next((name, size) for name, size in UNITS if max(one.columns.cache_bytes for one in entries) >= size)
    every = [
        BoardColumn("answers found, %", "more", tuple(100 * entry.columns.right for entry in entries)),
        BoardColumn("harm to short texts", "less", tuple(entry.columns.harm for entry in entries)),
        BoardColumn("pairs, %", "less", tuple(100 * entry.columns.key_share for entry in entries)),
        BoardColumn("time, relative", "less", tuple(entry.candidate.slowdown for entry in entries)),
        BoardColumn(f"cache, {unit}", "less", tuple(entry.columns.cache_bytes / step for entry in entries), "log"),
    ]
    asked = any(entry.right for entry in entries), any(entry.harm for entry in entries)
    return [*every[:1] * asked[0], *every[1:2] * asked[1], *every[2:]]


def _drawn(board: Leaderboard, keys: dict[str, int], canvas: Canvas, label: str) -> Markup:
    """Panels in a row, or one below the other where that is narrow."""
    panels = columns(board.entries)
    across, side = (1, 186.0) if canvas.narrow else (len(panels), SIDE)
    width = (canvas.width - 52 - side - 14 * (across - 1)) / across
    height = TOP + HEIGHT + 40
    rows = [panels[first : first + across] for first in range(0, len(panels), across)]
    inside = [_row(_plotted(board, row, width, n * height), board, keys, canvas) for n, row in enumerate(rows)]
    unit = text(f"loss at {board.comparison.lengths[-1]:,} tokens", 8, 16, "unit")
    return drawing(canvas, height * len(rows) + 4, unit, *inside, kind="board", label=label)


def _plotted(board: Leaderboard, panels: Sequence[BoardColumn], width: float, above: float) -> list[PlottedColumn]:
    """Some panels beside each other; a loss beyond the scale sets no end of any axis."""
    top, losses = above + TOP, [entry.columns.loss for entry in board.entries]
    inside = [loss <= min(losses) + WORST for loss in losses]
    up = spanning([loss for loss, shown in zip(losses, inside, strict=True) if shown], top + HEIGHT, top)
    plotted = []
    for number, panel in enumerate(panels):
        left = 48 + number * (width + 14)
        values = [value for value, shown in zip(panel.values, inside, strict=True) if shown]
        plotted.append(PlottedColumn(panel, Plot(spanning(values, left, left + width, panel.kind, room=0.1), up)))
    return plotted


def _row(plotted: Sequence[PlottedColumn], board: Leaderboard, keys: dict[str, int], canvas: Canvas) -> Markup:
    """A row of panels, and the names of what is on the front at its right."""
    up, end = plotted[0].plot.y, plotted[-1].plot.right
    front = [entry for entry in board.entries if not entry.beaten_by]
    places = spread([up.kept(entry.columns.loss) for entry in front], LABEL, up.end, up.start)
    labels = dict(zip((entry.candidate.line for entry in front), places, strict=True))
    names = shortened([name_of(entry.candidate.line) for entry in board.entries], 22)
    groups = []
    for number, (entry, name) in enumerate(zip(board.entries, names, strict=True)):
        line, loss = entry.candidate.line, entry.columns.loss
        marks = _marks(entry, number, plotted)
        if line in labels:
            y, place = up.kept(loss), labels[line]
            tie = path([(plotted[0].plot.left, y), (end + 4, y), (end + 16, place), (end + 22, place)])
            value = text(f"{loss:.3f}", canvas.width - 4, place + 4, "value end")
            named = text(name, end + 26, place + 4, "name")
            marks = [element("path", d=tie, class_="tie"), named, value, *marks]
        groups.append(_group(entry, keys[line], marks))
    scales = [_scale(column, first=not n) for n, column in enumerate(plotted)]
    return element("g", *scales, *reversed(groups))


def _scale(column: PlottedColumn, *, first: bool) -> Markup:
    """The grid of a panel, its heading, and which end is the better one; losses stand beside the first."""
    panel, plot = column
    middle = (plot.left + plot.right) / 2
    heading = text(panel.heading, middle, plot.top - 22, "note middle strong")
    better = text(f"{panel.better} is better", middle, plot.top - 7, "tick middle")
    up, across = legible(ticks(plot.y), plot.y, 18), ticks(plot.x, 4)
    room = LETTER * max((len(tick.label) for tick in across), default=0) + 8
    behind = grid(plot, legible(across, plot.x, room), up if first else [tick._replace(label="") for tick in up])
    return element("g", heading, better, behind)


def _marks(entry: RankedEntry, number: int, plotted: Sequence[PlottedColumn]) -> list[Markup]:
    """The mark of one line in every panel."""
    up = plotted[0].plot.y
    shape = ABOVE if up.beyond(entry.columns.loss) else MARKERS[entry.costs.deployment]
    class_ = "dot off" if entry.beaten_by else "dot"
    places = [(plot.x.kept(panel.values[number]), up.kept(entry.columns.loss)) for panel, plot in plotted]
    return [element("path", d=marker(shape, *place, 4.5), class_=class_) for place in places]


def _group(entry: RankedEntry, key: int, marks: Sequence[Markup]) -> Markup:
    """Everything of one line, and what is said where the pointer is on it."""
    name, loss = name_of(entry.candidate.line), entry.columns.loss
    words = f"{name}: {loss:.3f}" + (f", behind {name_of(entry.beaten_by)}" if entry.beaten_by else "")
    title, class_ = element("title", words), f"series {style_of(key)}"
    return element("g", title, *marks, class_=class_, data_series=key, data_name=name)
