"""The picture of a leaderboard: the loss against all other columns, side by side on one axis of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ropewalk.measure.comparison.race import Leaderboard, RankedEntry
from ropewalk.measure.report.drawing.build import PALE, spanning
from ropewalk.measure.report.drawing.charts import Axis, Chart, Kind, Panel, ReportFigure, Series
from ropewalk.measure.report.drawing.names import name_of

MARKERS = {"static": 1, "plugin": 0, "here": 3}  # a square, a disc, a diamond
RUNS = {"static": "vLLM as it is", "plugin": "vLLM with the plugin", "here": "Ropewalk alone"}
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
ABOVE = 2  # the triangle of a loss beyond the scale
WORST = 1.0  # nats above the lowest loss: the scale ends here
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
    return ReportFigure("leaderboard", QUESTION, CAPTION, _chart(board, keys), head, numbers)


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


def _chart(board: Leaderboard, keys: dict[str, int]) -> Chart:
    """A loss beyond the scale sets no end of any axis."""
    losses = [entry.columns.loss for entry in board.entries]
    inside = [loss <= min(losses) + WORST for loss in losses]
    shown = [loss for loss, within in zip(losses, inside, strict=True) if within]
    y = spanning(f"loss at {board.comparison.lengths[-1]:,} tokens", shown)
    panels = []
    for column in columns(board.entries):
        values = [value for value, within in zip(column.values, inside, strict=True) if within]
        x = spanning("", values, column.kind, room=0.1)
        dots = [
            _dot(entry, keys[entry.candidate.line], value, x, y)
            for entry, value in zip(board.entries, column.values, strict=True)
        ]
        panels.append(Panel(x, y, tuple(dots), name=column.heading, note=f"{column.better} is better"))
    return Chart(kind="dots", panels=tuple(panels), columns=len(panels), height=340.0, digits=3)


def _dot(entry: RankedEntry, key: int, value: float, x: Axis, y: Axis) -> Series:
    """One line in one panel; only what is on the front has its name beside the panels."""
    name, loss = name_of(entry.candidate.line), entry.columns.loss
    behind = f", behind {name_of(entry.beaten_by)}" if entry.beaten_by else ""
    return Series(
        name="" if entry.beaten_by else name,
        key=key,
        x=(x.clamp(value),),
        y=(y.clamp(loss),),
        look="dots",
        value=f"{loss:.3f}",
        words=(f"{name}: {loss:.3f}{behind}",),
        sizes=(4.5,),
        alpha=PALE if entry.beaten_by else 1.0,
        marker=ABOVE if y.beyond(loss) else MARKERS[entry.costs.deployment],
    )
