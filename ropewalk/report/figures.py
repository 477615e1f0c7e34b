"""Figures of what a comparison measured. Lines differ by dash and marker as well as by colour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from ropewalk.evaluation.compare.compare import Candidate, Comparison
from ropewalk.evaluation.metrics.intervals import Estimate, share
from ropewalk.evaluation.tasks import Task
from ropewalk.report.drawing import (
    LETTERS,
    SMALL,
    ReportFigure,
    axes,
    doubling,
    legend,
    mark,
    name_of,
    named,
    panels,
    styles,
)
from ropewalk.report.sections import REACH
from ropewalk.report.tables import short

SPREAD = 0.3  # doublings over which the markers of one length are spread
TOKENS, LOSS = "context length, tokens", "loss, nats per token"
DOTTED = "The dotted line is the trained length."


def figures(comparison: Comparison) -> list[ReportFigure]:
    """Every figure for which there are numbers."""
    drawn = [loss_by_length(comparison), loss_by_position(comparison)]
    measured = list(dict.fromkeys(task.name for task in comparison.tasks))
    for name in (task.name for task in _scored(comparison)):
        drawn.append(score_by_length(comparison, name))
        if _has_depths(comparison, name):
            drawn.append(score_by_depth(comparison, name))
    if "repetition" in measured:
        drawn.append(repetition_by_length(comparison))
    if "perplexity" in measured:
        drawn.append(perplexity_by_length(comparison))
    return drawn


def _scored(comparison: Comparison) -> list[Task]:
    """The first task of each name that has a score."""
    return list({task.name: task for task in reversed(comparison.tasks) if task.scored}.values())[::-1]


def _has_depths(comparison: Comparison, name: str) -> bool:
    rows = [row for candidate in comparison.candidates for row in candidate.rows if row.task.name == name]
    return any("depth" in sample for row in rows for sample in row.samples)


def loss_by_length(comparison: Comparison) -> ReportFigure:
    """The same last tokens after growing context."""
    caption = f"Loss of the same last tokens, after more and more context. {DOTTED}"
    return _by_length(comparison, "loss_by_length", caption, "context", "loss", LOSS)


def repetition_by_length(comparison: Comparison) -> ReportFigure:
    """Accuracy on repeated text."""
    caption = f"Next-token accuracy on repeated text: half a trained length of text, repeated. {DOTTED}"
    return _by_length(comparison, "repetition_by_length", caption, "repetition", "accuracy", "accuracy")


def perplexity_by_length(comparison: Comparison) -> ReportFigure:
    """Windows of each length, half overlapping."""
    caption = f"Perplexity of whole texts in windows that overlap by half; each token counts once. {DOTTED}"
    return _by_length(comparison, "perplexity_by_length", caption, "perplexity", "strided", "perplexity")


def score_by_length(comparison: Comparison, name: str) -> ReportFigure:
    """The score of a task; the mean over all tasks of that name."""
    titles = [task.title for task in comparison.tasks if task.name == name]
    if len(titles) == 1:
        headline = next(task.headline for task in comparison.tasks if task.name == name)
        caption = f"Share of passkeys found, over all depths. {DOTTED}"
        caption = caption if name == "passkey" else f"{titles[0]}: share correct. {DOTTED}"
        return _by_length(comparison, f"{name}_by_length", caption, titles[0], headline, "share correct")
    figure, plot = axes(TOKENS, "share correct")
    numbers = []
    for candidate, style in zip(comparison.candidates, styles(), strict=False):
        scores = candidate.scores(name)
        plot.plot(list(scores), list(scores.values()), label=named(candidate.line), **style)
        numbers += [(candidate.line, length, score) for length, score in scores.items()]
    _finish(comparison, figure, plot)
    caption = f"{name}: share correct, averaged over {', '.join(titles)}. {DOTTED}"
    return ReportFigure(f"{name}_by_length", caption, figure, ("extension", "length", "score"), tuple(numbers), REACH)


def loss_by_position(comparison: Comparison) -> ReportFigure:
    """Where in a long text a method breaks down: a panel for each, with the base model in grey."""
    base, *others = comparison.candidates
    drawn = others or [base]
    figure, grid = panels([name_of(candidate.line) for candidate in drawn], columns=2, height=1.25)
    for plot, candidate in zip(grid, drawn, strict=True):
        plot.plot(*_curve(comparison, base), color="#a8a8a8", linewidth=1.2)
        plot.plot(*_curve(comparison, candidate), color="black", linewidth=1.2)
        mark(plot, comparison.trained_len)
    figure.supxlabel("position in the text", fontsize=LETTERS)
    figure.supylabel(LOSS, fontsize=LETTERS)
    curves = {candidate.line: _curve(comparison, candidate) for candidate in comparison.candidates}
    numbers = tuple((line, *pair) for line, curve in curves.items() for pair in zip(*curve, strict=True))
    caption = f"Loss by position in texts of {comparison.lengths[-1]:,} tokens: black is the extension, grey the base"
    caption += f" model. {DOTTED}"
    return ReportFigure("loss_by_position", caption, figure, ("extension", "position", "loss"), numbers, "context")


def _curve(comparison: Comparison, candidate: Candidate) -> tuple[list[int], list[float]]:
    """Positions in the longest texts, and losses averaged over texts."""
    longest = comparison.lengths[-1]
    row = candidate.at("context", longest)
    bins = zip(*(sample["curve"] for sample in row.samples), strict=True) if row else ()
    curve = [sum(losses) / len(losses) for losses in bins]
    return [round((n + 0.5) * longest / len(curve)) for n in range(len(curve))], curve


def score_by_depth(comparison: Comparison, name: str) -> ReportFigure:
    """One small map for each candidate: length across, depth downwards."""
    lines = [name_of(candidate.line) for candidate in comparison.candidates]
    figure, maps = panels(lines, columns=3, height=1.4)
    numbers: list[tuple[Any, ...]] = []
    for plot, candidate in zip(maps, comparison.candidates, strict=True):
        grid = _grid(candidate, name)
        _draw(plot, grid)
        numbers += [(candidate.line, *cell, *estimate[:3]) for cell, estimate in sorted(grid.items())]
    figure.supxlabel("tokens", fontsize=SMALL)
    figure.supylabel("depth", fontsize=SMALL)
    caption = f"{'Passkeys' if name == 'passkey' else name} by length (across) and depth in the text (down): white is"
    caption += " found, black is missed."
    head = ("extension", "length", "depth", "right", "low", "high")
    return ReportFigure(f"{name}_by_depth", caption, figure, head, tuple(numbers), name)


def _grid(candidate: Candidate, name: str) -> dict[tuple[int, float], Estimate]:
    """The share correct in each cell of length and depth."""
    cells: dict[tuple[int, float], list[bool]] = {}
    for row in candidate.rows:
        for sample in row.samples if row.task.name == name else ():
            cells.setdefault((row.length, sample["depth"]), []).append(bool(sample["right"]))
    return {cell: share(sum(right), len(right)) for cell, right in cells.items()}


def _draw(plot: Axes, grid: Mapping[tuple[int, float], Estimate]) -> None:
    """A map of shares; a cell without a sample stays empty."""
    if not grid:  # out of memory at every length
        return
    lengths, depths = (sorted(set(values)) for values in zip(*grid, strict=True))
    shares = [[grid[n, depth].value if (n, depth) in grid else math.nan for n in lengths] for depth in depths]
    plot.imshow(shares, vmin=0, vmax=1, cmap="Greys_r", aspect="auto")
    plot.set_xticks(range(len(lengths)), [short(n) for n in lengths], fontsize=SMALL)
    plot.set_yticks(range(len(depths)), [f"{100 * depth:.0f}%" for depth in depths], fontsize=SMALL)
    _separate_cells(plot, len(lengths), len(depths))


def _separate_cells(plot: Axes, across: int, down: int) -> None:
    """Thin lines between the cells, which may all be white."""
    plot.grid(visible=False)
    plot.set_xticks([n - 0.5 for n in range(1, across)], minor=True)
    plot.set_yticks([n - 0.5 for n in range(1, down)], minor=True)
    plot.grid(which="minor", color="#999999", linewidth=0.6)
    plot.tick_params(which="minor", length=0)


def _by_length(comparison: Comparison, name: str, caption: str, task: str, number: str, label: str) -> ReportFigure:
    figure, plot = axes(TOKENS, label)
    numbers = []
    for place, (candidate, style) in enumerate(zip(comparison.candidates, styles(), strict=False)):
        rows = [row for length in comparison.lengths if (row := candidate.at(task, length))]
        estimates = [row.numbers[number] for row in rows]
        # Texts differ more than methods do: for losses, the spread over texts would hide every difference.
        spread = None if task == "context" else _error_bars(estimates)
        # Intervals at one place would hide each other.
        aside = 2 ** (SPREAD * (place / len(comparison.candidates) - 0.5)) if spread else 1
        across, values = [row.length * aside for row in rows], [estimate.value for estimate in estimates]
        plot.errorbar(across, values, yerr=spread, label=named(candidate.line), capsize=2, **style)
        numbers += [(candidate.line, row.length, *e[:3]) for row, e in zip(rows, estimates, strict=True)]
    _finish(comparison, figure, plot)
    return ReportFigure(name, caption, figure, ("extension", "length", number, "low", "high"), tuple(numbers), task)


def _error_bars(estimates: list[Estimate]) -> list[list[float]]:
    """Below and above each value."""
    return [[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]]


def _finish(comparison: Comparison, figure: Any, plot: Axes) -> None:
    mark(plot, comparison.trained_len)
    legend(figure, plot)
    doubling(plot, comparison.lengths)
