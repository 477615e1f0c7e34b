"""Figures of what a comparison measured. Lines differ by dash and marker as well as by colour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from ropewalk.evaluation.compare.compare import Candidate, Comparison
from ropewalk.evaluation.metrics.intervals import Estimate, share
from ropewalk.evaluation.tasks import Task
from ropewalk.report.drawing import LETTERS, SMALL, ReportFigure, axes, doubling, legend, mark, named, panels, styles
from ropewalk.report.sections import REACH

APART = 0.3  # doublings over which the marks of one length are spread


def figures(comparison: Comparison) -> list[ReportFigure]:
    """Every figure for which there are numbers."""
    found = [loss_by_length(comparison), loss_by_position(comparison)]
    measured = list(dict.fromkeys(task.name for task in comparison.tasks))
    for name in (task.name for task in _scored(comparison)):
        found.append(found_by_length(comparison, name))
        if _has_depths(comparison, name):
            found.append(found_by_depth(comparison, name))
    if "repetition" in measured:
        found.append(repetition_by_length(comparison))
    if "perplexity" in measured:
        found.append(perplexity_by_length(comparison))
    return found


def _scored(comparison: Comparison) -> list[Task]:
    """The first task of each name that is a share of what could be right."""
    return list({task.name: task for task in reversed(comparison.tasks) if task.scored}.values())[::-1]


def _has_depths(comparison: Comparison, name: str) -> bool:
    rows = [row for each in comparison.contenders for row in each.rows if row.task.name == name]
    return any("depth" in sample for row in rows for sample in row.samples)


def loss_by_length(comparison: Comparison) -> ReportFigure:
    """The same last tokens under growing context."""
    caption = "Loss of the same last tokens, with more and more text before them. The trained length is marked."
    return _by_length(comparison, "loss_by_length", caption, "context", "loss", "loss, nats per token")


def repetition_by_length(comparison: Comparison) -> ReportFigure:
    """Accuracy on text told again."""
    caption = "Next-token accuracy where a text of half the trained length is told again and again."
    return _by_length(comparison, "repetition_by_length", caption, "repetition", "accuracy", "accuracy")


def perplexity_by_length(comparison: Comparison) -> ReportFigure:
    """Windows of each length, half overlapping."""
    caption = "Perplexity of whole texts, read in windows that move on by half their length; every token counts once."
    return _by_length(comparison, "perplexity_by_length", caption, "perplexity", "strided", "perplexity")


def found_by_length(comparison: Comparison, name: str) -> ReportFigure:
    """The share of what a task asks for that was found; the mean over all tasks of that name."""
    titles = [task.title for task in comparison.tasks if task.name == name]
    if len(titles) == 1:
        headline = next(task.headline for task in comparison.tasks if task.name == name)
        caption = "Pass keys found, over all depths." if name == "passkey" else f"{titles[0]}: the share found."
        return _by_length(comparison, f"{name}_by_length", caption, titles[0], headline, "share found")
    figure, own = axes("tokens of context", "share found")
    numbers = []
    for each, style in zip(comparison.contenders, styles(), strict=False):
        scores = each.scores(name)
        own.plot(list(scores), list(scores.values()), label=named(each.line), **style)
        numbers += [(each.line, length, score) for length, score in scores.items()]
    mark(own, comparison.trained_len)
    legend(figure, own)
    doubling(own, comparison.lengths)
    caption = f"{name}: the share found, averaged over {', '.join(titles)}."
    return ReportFigure(f"{name}_by_length", caption, figure, ("extension", "length", "score"), tuple(numbers), REACH)


def loss_by_position(comparison: Comparison) -> ReportFigure:
    """Where in a long text a method breaks down: a panel for each, the bare model behind it in grey."""
    bare, *others = comparison.contenders
    figure, grid = panels([each.line for each in others or [bare]], columns=2, height=1.25)
    for own, each in zip(grid, others or [bare], strict=True):
        own.plot(*_curve(comparison, bare), color="#a8a8a8", linewidth=1.2)
        own.plot(*_curve(comparison, each), color="black", linewidth=1.2)
        mark(own, comparison.trained_len)
    figure.supxlabel("position in the text", fontsize=LETTERS)
    figure.supylabel("loss, nats per token", fontsize=LETTERS)
    curves = {each.line: _curve(comparison, each) for each in comparison.contenders}
    numbers = tuple((line, *pair) for line, curve in curves.items() for pair in zip(*curve, strict=True))
    caption = f"Loss by position in texts of {comparison.lengths[-1]:,} tokens: black the extension, grey the bare one."
    caption += " The trained length is marked."
    return ReportFigure("loss_by_position", caption, figure, ("extension", "position", "loss"), numbers, "context")


def _curve(comparison: Comparison, each: Candidate) -> tuple[list[int], list[float]]:
    """Positions and losses of the longest texts, the means over texts."""
    longest = comparison.lengths[-1]
    row = each.at("context", longest)
    curve = [sum(bin_) / len(bin_) for bin_ in zip(*(s["curve"] for s in row.samples), strict=True)] if row else []
    return [round((n + 0.5) * longest / len(curve)) for n in range(len(curve))], curve


def found_by_depth(comparison: Comparison, name: str) -> ReportFigure:
    """One small map for each contender: length across, depth downwards."""
    figure, maps = panels([each.line for each in comparison.contenders], columns=3, height=1.4)
    numbers: list[tuple[Any, ...]] = []
    for own, each in zip(maps, comparison.contenders, strict=True):
        grid = _grid(each, name)
        _draw(own, grid)
        numbers += [(each.line, length, depth, *found[:3]) for (length, depth), found in sorted(grid.items())]
    what = "Pass keys" if name == "passkey" else f"What {name} hides,"
    figure.supxlabel("tokens", fontsize=SMALL)
    figure.supylabel("depth", fontsize=SMALL)
    caption = f"{what} by length (across) and depth (down): white is found, black is not."
    head = ("extension", "length", "depth", "right", "low", "high")
    return ReportFigure(f"{name}_by_depth", caption, figure, head, tuple(numbers), name)


def _grid(each: Candidate, name: str) -> dict[tuple[int, float], Estimate]:
    """The share found in each cell of length and depth."""
    cells: dict[tuple[int, float], list[bool]] = {}
    for row in each.rows:
        for sample in row.samples if row.task.name == name else ():
            cells.setdefault((row.length, sample["depth"]), []).append(bool(sample["right"]))
    return {cell: share(sum(right), len(right)) for cell, right in cells.items()}


def _draw(own: Axes, grid: Mapping[tuple[int, float], Estimate]) -> None:
    """A map of shares; a cell without a sample stays empty."""
    if not grid:  # memory sufficed for none
        return
    lengths, depths = (sorted(set(each)) for each in zip(*grid, strict=True))
    shares = [[grid[n, depth].value if (n, depth) in grid else math.nan for n in lengths] for depth in depths]
    own.imshow(shares, vmin=0, vmax=1, cmap="Greys_r", aspect="auto")
    own.set_xticks(range(len(lengths)), [_short(n) for n in lengths], fontsize=SMALL)
    own.set_yticks(range(len(depths)), [f"{100 * depth:.0f}%" for depth in depths], fontsize=SMALL)
    _cells_apart(own, len(lengths), len(depths))


def _cells_apart(own: Axes, across: int, down: int) -> None:
    """Thin lines between the cells, which may all be white."""
    own.grid(visible=False)
    own.set_xticks([n - 0.5 for n in range(1, across)], minor=True)
    own.set_yticks([n - 0.5 for n in range(1, down)], minor=True)
    own.grid(which="minor", color="#999999", linewidth=0.6)
    own.tick_params(which="minor", length=0)


def _short(length: int) -> str:
    """A length in few letters."""
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


def _by_length(comparison: Comparison, name: str, caption: str, task: str, number: str, label: str) -> ReportFigure:
    figure, own = axes("tokens of context", label)
    numbers = []
    for place, (each, style) in enumerate(zip(comparison.contenders, styles(), strict=False)):
        rows = [row for length in comparison.lengths if (row := each.at(task, length))]
        found = [row.numbers[number] for row in rows]
        values = [each.value for each in found]
        # Texts differ more than methods do: the spread of losses over texts says nothing of a difference.
        spread = None if task == "context" else [[e.value - e.low for e in found], [e.high - e.value for e in found]]
        # Intervals at one place would hide each other.
        aside = 2 ** (APART * (place / len(comparison.contenders) - 0.5)) if spread else 1
        own.errorbar(
            [row.length * aside for row in rows], values, yerr=spread, label=named(each.line), capsize=2, **style
        )
        numbers += [(each.line, row.length, *estimate[:3]) for row, estimate in zip(rows, found, strict=True)]
    mark(own, comparison.trained_len)
    legend(figure, own)
    doubling(own, comparison.lengths)
    return ReportFigure(name, caption, figure, ("extension", "length", number, "low", "high"), tuple(numbers), task)
