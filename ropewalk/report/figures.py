"""Figures of a comparison. Lines differ by dash and marker as well as by colour: they are told apart in grey."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ropewalk.evaluation.comparison import Comparison, Contender
from ropewalk.evaluation.scores import Estimate, share
from ropewalk.evaluation.tasks import Task
from ropewalk.report.sections import REACH

COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e08e00", "#6a4c93", "#555555", "#008b8b", "#a0522d", "#c71585", "#6b8e23")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
WIDTH, HEIGHT = 7.2, 4.2


class Drawn(NamedTuple):
    """A figure, its name, what it shows, and the numbers behind it."""

    name: str
    caption: str
    figure: Figure
    head: tuple[str, ...]
    numbers: tuple[tuple[Any, ...], ...]
    section: str  # where it stands on the page


def figures(comparison: Comparison) -> list[Drawn]:
    """Every figure for which there are numbers."""
    found = [loss_by_length(comparison), loss_by_position(comparison)]
    measured = list(dict.fromkeys(task.name for task in comparison.tasks))
    for name in (task.name for task in _scored(comparison)):
        found.append(found_by_length(comparison, name))
        if _has_depths(comparison, name):
            found.append(found_by_depth(comparison, name))
    if "repetition" in measured:
        found.append(repetition_by_length(comparison))
    return found


def _scored(comparison: Comparison) -> list[Task]:
    """The first task of each name that is a share of what could be right."""
    return list({task.name: task for task in reversed(comparison.tasks) if task.scored}.values())[::-1]


def _has_depths(comparison: Comparison, name: str) -> bool:
    rows = [row for row in comparison.contenders[0].rows if row.task.name == name]
    return any("depth" in sample for row in rows for sample in row.samples)


def loss_by_length(comparison: Comparison) -> Drawn:
    """The same last tokens under growing context."""
    caption = "Loss of the same last tokens, with more and more text before them. The trained length is marked."
    return _by_length(comparison, "loss_by_length", caption, "context", "loss", "loss, nats per token")


def repetition_by_length(comparison: Comparison) -> Drawn:
    """Accuracy on text told again."""
    caption = "Next-token accuracy where a text of half the trained length is told again and again."
    return _by_length(comparison, "repetition_by_length", caption, "repetition", "accuracy", "accuracy")


def found_by_length(comparison: Comparison, name: str) -> Drawn:
    """The share of what a task asks for that was found; the mean over all tasks of that name."""
    titles = [task.title for task in comparison.tasks if task.name == name]
    if len(titles) == 1:
        headline = next(task.headline for task in comparison.tasks if task.name == name)
        caption = "Pass keys found, over all depths." if name == "passkey" else f"{titles[0]}: the share found."
        return _by_length(comparison, f"{name}_by_length", caption, titles[0], headline, "share found")
    figure, axes = _axes("tokens of context", "share found")
    numbers = []
    for each, style in zip(comparison.contenders, _styles(), strict=False):
        scores = each.scores(name)
        axes.plot(list(scores), list(scores.values()), label=each.line, **style)
        numbers += [(each.line, length, score) for length, score in scores.items()]
    _finish_by_length(axes, comparison)
    caption = f"{name}: the share found, averaged over {', '.join(titles)}."
    return Drawn(f"{name}_by_length", caption, figure, ("extension", "length", "score"), tuple(numbers), REACH)


def loss_by_position(comparison: Comparison) -> Drawn:
    """Where in a long text a method breaks down."""
    figure, axes = _axes("position in the text", "loss, nats per token")
    longest = comparison.lengths[-1]
    numbers = []
    for each, style in zip(comparison.contenders, _styles(), strict=False):
        row = each.at("context", longest)
        curve = [sum(bin_) / len(bin_) for bin_ in zip(*(s["curve"] for s in row.samples), strict=True)] if row else []
        places = [round((n + 0.5) * longest / len(curve)) for n in range(len(curve))]
        axes.plot(places, curve, label=each.line, **{**style, "marker": ""})
        numbers += [(each.line, *pair) for pair in zip(places, curve, strict=True)]
    _finish(axes, comparison)
    caption = f"Loss by position in texts of {longest:,} tokens; the trained length is marked."
    return Drawn("loss_by_position", caption, figure, ("extension", "position", "loss"), tuple(numbers), "context")


def found_by_depth(comparison: Comparison, name: str) -> Drawn:
    """One small map for each contender: length across, depth downwards."""
    count = len(comparison.contenders)
    columns = min(4, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH, 1.9 * rows + 0.4), layout="constrained")
    numbers: list[tuple[Any, ...]] = []
    for place, each in enumerate(comparison.contenders):
        grid = _grid(each, name)
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw(axes, grid)
        axes.set_title(each.line, fontsize=8)
        numbers += [(each.line, length, depth, *found[:3]) for (length, depth), found in sorted(grid.items())]
    what = "Pass keys" if name == "passkey" else f"What {name} hides,"
    caption = f"{what} by length (across) and depth (down): white is found, black is not."
    head = ("extension", "length", "depth", "right", "low", "high")
    return Drawn(f"{name}_by_depth", caption, figure, head, tuple(numbers), name)


def _grid(each: Contender, name: str) -> dict[tuple[int, float], Estimate]:
    """The share found in each cell of length and depth."""
    cells: dict[tuple[int, float], list[bool]] = {}
    for row in each.rows:
        for sample in row.samples if row.task.name == name else ():
            cells.setdefault((row.length, sample["depth"]), []).append(bool(sample["right"]))
    return {cell: share(sum(right), len(right)) for cell, right in cells.items()}


def _draw(axes: Any, grid: Mapping[tuple[int, float], Estimate]) -> None:
    """A map of shares; a cell without a sample stays empty."""
    lengths, depths = (sorted(set(each)) for each in zip(*grid, strict=True))
    shares = [[grid[n, depth].value if (n, depth) in grid else math.nan for n in lengths] for depth in depths]
    axes.imshow(shares, vmin=0, vmax=1, cmap="Greys_r", aspect="auto")
    axes.set_xticks(range(len(lengths)), [f"{n:,}" for n in lengths], fontsize=6)
    axes.set_yticks(range(len(depths)), [f"{100 * depth:.0f}%" for depth in depths], fontsize=6)


def _by_length(comparison: Comparison, name: str, caption: str, task: str, number: str, label: str) -> Drawn:
    figure, axes = _axes("tokens of context", label)
    numbers = []
    for each, style in zip(comparison.contenders, _styles(), strict=False):
        rows = [row for length in comparison.lengths if (row := each.at(task, length))]
        found = [row.numbers[number] for row in rows]
        values = [each.value for each in found]
        # Texts differ more than methods do: the spread of losses over texts says nothing of a difference.
        spread = None if task == "context" else [[e.value - e.low for e in found], [e.high - e.value for e in found]]
        axes.errorbar([row.length for row in rows], values, yerr=spread, label=each.line, capsize=2, **style)
        numbers += [(each.line, row.length, *estimate[:3]) for row, estimate in zip(rows, found, strict=True)]
    _finish_by_length(axes, comparison)
    return Drawn(name, caption, figure, ("extension", "length", number, "low", "high"), tuple(numbers), task)


def _axes(across: str, up: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.25)
    return figure, axes


def _styles() -> Any:
    return (
        {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4, "linewidth": 1.4}
        for colour, dash, marker in zip(cycle(COLOURS), cycle(DASHES), cycle(MARKERS), strict=False)
    )


def _finish(axes: Any, comparison: Comparison) -> None:
    axes.axvline(comparison.trained_len, color="black", linewidth=0.8, linestyle=(0, (1, 2)))
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _finish_by_length(axes: Any, comparison: Comparison) -> None:
    _finish(axes, comparison)
    axes.set_xscale("log", base=2)
    axes.set_xticks(comparison.lengths, [f"{length:,}" for length in comparison.lengths])


def embedded(drawn: Drawn) -> str:
    """A figure as an address that a page carries within itself."""
    return "data:image/png;base64," + base64.b64encode(rendered(drawn, "png")).decode()


def rendered(drawn: Drawn, kind: str) -> bytes:
    """A figure as a file's bytes."""
    out = io.BytesIO()
    drawn.figure.savefig(out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def written(drawn: Drawn, folder: Path) -> None:
    """A figure as PNG and SVG, and its numbers as CSV."""
    for kind in ("png", "svg"):
        (folder / f"{drawn.name}.{kind}").write_bytes(rendered(drawn, kind))
    lines = [",".join(drawn.head), *(",".join(map(_csv, row)) for row in drawn.numbers)]
    (folder / f"{drawn.name}.csv").write_text("\n".join(lines) + "\n")


def _csv(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if "," in text else text
