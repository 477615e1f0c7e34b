"""Figures of a diagnosis: lines of the base and the extended model, and maps of all their layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ropewalk.evaluation.diagnostics.diagnose import DiagnosedSide, Diagnosis
from ropewalk.evaluation.diagnostics.masses import NEAR, SINKS
from ropewalk.evaluation.diagnostics.rows import Curves
from ropewalk.report.drawing import (
    LETTERS,
    SMALL,
    ReportFigure,
    axes,
    legend,
    lines,
    mark,
    name_of,
    named,
    panels,
    stacked,
)
from ropewalk.report.formulas import formulas

MOST = 6  # layers in a figure of lines; the files have all
MARK = "#d1495b"
MARKED = "The trained length is marked."
MAPS = f"Top: the mean over layers. Below: a map of all layers, darker is more. {MARKED}"


def insides(diagnosis: Diagnosis) -> list[ReportFigure]:
    """Every figure for which there are numbers."""
    extensions = {side.line: side.extension for side in diagnosis.sides}
    drawn = [
        loss(diagnosis),
        mass_of_last(diagnosis),
        logits_by_distance(diagnosis),
        entropy(diagnosis),
        states(diagnosis),
        mass_of_first(diagnosis),
        sinks(diagnosis),
        *formulas(extensions, diagnosis.facts, diagnosis.length),
    ]
    return [*drawn, bias_terms(diagnosis)] if any(side.terms for side in diagnosis.sides) else drawn


def some_layers(count: int) -> list[int]:
    """The first, the last and some between."""
    few = min(MOST, count)
    return sorted({round(n * (count - 1) / max(1, few - 1)) for n in range(few)})


def loss(diagnosis: Diagnosis) -> ReportFigure:
    """By position, both sides in one plot."""
    curves = {side.line: side.losses for side in diagnosis.sides}
    caption = f"Loss by position. {MARKED}"
    return _by_position(diagnosis, "loss", caption, curves, begin=1)


def sinks(diagnosis: Diagnosis) -> ReportFigure:
    """By position, of a stream whose first tokens are kept, replaced or removed."""
    kept, replaced, removed = diagnosis.streams
    curves = {"sinks kept": kept, "replaced by line breaks": replaced, "removed": removed}
    reach = diagnosis.stream.spans
    caption = (
        f"Loss by position of a stream ({reach}): with its first tokens, with line breaks in their place, and without"
        f" them, with a window of as many keys. {MARKED}"
    )
    return _by_position(diagnosis, "sinks", caption, curves, begin=getattr(reach, "n_sink", 1))


def _by_position(
    diagnosis: Diagnosis, name: str, caption: str, curves: dict[str, tuple[float, ...]], *, begin: int
) -> ReportFigure:
    """Curves in bins over positions from `begin` on."""
    figure, plot = axes("position in the text", "loss, nats per token")
    numbers: list[tuple[Any, ...]] = []
    for (label, curve), style in zip(curves.items(), lines(), strict=False):
        width = (diagnosis.length - begin) / len(curve)
        at = [begin + (n + 0.5) * width for n in range(len(curve))]
        plot.plot(at, curve, label=named(label), **style)
        numbers += [(label, *pair) for pair in zip(at, curve, strict=True)]
    mark(plot, diagnosis.facts.trained_len)
    legend(figure, plot)
    return ReportFigure(name, caption, figure, ("curve", "position", "loss"), tuple(numbers))


def entropy(diagnosis: Diagnosis) -> ReportFigure:
    """Over how many keys a query spreads its attention."""
    caption = "Entropy of attention by the position of the query: n keys with equal shares have entropy ln(n)."
    return _by_query(diagnosis, "entropy", caption, "entropy, nats", lambda side: side.entropy)


def mass_of_last(diagnosis: Diagnosis) -> ReportFigure:
    """Attention on near keys."""
    caption = f"Attention on the last {NEAR} keys by the position of the query."
    return _by_query(diagnosis, "mass_of_last", caption, "share of attention", lambda side: side.last)


def mass_of_first(diagnosis: Diagnosis) -> ReportFigure:
    """Attention on the sinks."""
    caption = f"Attention on the first {SINKS} keys of the text by the position of the query."
    return _by_query(diagnosis, "mass_of_first", caption, "share of attention", lambda side: side.first)


def _by_query(
    diagnosis: Diagnosis, name: str, caption: str, label: str, of: Callable[[DiagnosedSide], Curves]
) -> ReportFigure:
    figure, (plot, *maps) = _over_maps(diagnosis, label, of)
    for side, style in zip(diagnosis.sides, lines(), strict=False):
        plot.plot(of(side).at, _mean(of(side)), label=named(side.line), **style)
    _trained([plot, *maps], diagnosis)
    maps[-1].set_xlabel("position of the query", fontsize=LETTERS)
    legend(figure, plot)
    numbers = [(side.line, *row) for side in diagnosis.sides for row in _rows(of(side))]
    head = ("extension", "layer", "position", label.split(",")[0])
    return ReportFigure(name, f"{caption} {MAPS}", figure, head, tuple(numbers))


def logits_by_distance(diagnosis: Diagnosis) -> ReportFigure:
    """The largest logit of each layer; at the top, with the means."""
    figure, (plot, *maps) = _over_maps(diagnosis, "logit", lambda side: side.growth.largest)
    styles = lines()
    for side in diagnosis.sides:
        name, growth = name_of(side.line), side.growth
        plot.plot(growth.largest.at, _mean(growth.largest), label=named(f"{name}: largest"), **next(styles))
        plot.plot(growth.mean.at, _mean(growth.mean), label=named(f"{name}: mean"), **next(styles))
    _distances(plot, diagnosis)
    _trained([plot, *maps], diagnosis)
    maps[-1].set_xlabel("distance of the key", fontsize=LETTERS)
    legend(figure, plot)
    caption = (
        f"Logits by distance: the largest over heads and query rows, and the mean. {MAPS} The maps show the largest."
    )
    head = ("extension", "layer", "distance", "mean", "spread", "largest")
    return ReportFigure("logits_by_distance", caption, figure, head, tuple(_grown(diagnosis)))


def _over_maps(diagnosis: Diagnosis, label: str, of: Callable[[DiagnosedSide], Curves]) -> tuple[Figure, list[Axes]]:
    """Axes for lines, and below them a map for each side: positions across, layers downwards."""
    figure, grid = stacked([2.0, *(1.2 for _ in diagnosis.sides)])
    values = [value for side in diagnosis.sides for curve in of(side).layers for value in curve if value == value]
    for plot, side in zip(grid[1:], diagnosis.sides, strict=True):
        curves = of(side)
        shades = plot.pcolormesh(
            curves.at, range(len(curves.layers)), curves.layers, vmin=min(values), vmax=max(values), cmap="Greys"
        )
        shades.set_rasterized(True)
        plot.invert_yaxis()
        plot.grid(visible=False)
        plot.set_title(name_of(side.line), fontsize=SMALL)
        plot.set_ylabel("layer", fontsize=SMALL)
        plot.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    grid[0].set_ylabel(label, fontsize=LETTERS)
    figure.colorbar(shades, ax=grid, shrink=0.5, anchor=(0, 0)).ax.tick_params(labelsize=SMALL)
    return figure, grid


def _mean(curves: Curves) -> list[float]:
    """The mean over layers, without those that have no number."""
    columns = [[value for value in values if value == value] for values in zip(*curves.layers, strict=True)]
    return [sum(values) / len(values) if values else math.nan for values in columns]


def _grown(diagnosis: Diagnosis) -> list[tuple[Any, ...]]:
    rows = []
    for side in diagnosis.sides:
        for mean, spread, largest in zip(*map(_rows, side.growth), strict=True):
            rows.append((side.line, *mean, spread[-1], largest[-1]))
    return rows


def _distances(plot: Axes, diagnosis: Diagnosis) -> None:
    """Distances on a logarithmic scale."""
    plot.set_xscale("log", base=2)
    ticks = [8**n for n in range(8) if 8**n <= diagnosis.length]
    plot.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    plot.set_xlim(1, diagnosis.length)
    plot.minorticks_off()


def _trained(grid: Sequence[Axes], diagnosis: Diagnosis) -> None:
    """The trained length, in a colour that is visible on black and on white."""
    for plot in grid:
        mark(plot, diagnosis.facts.trained_len, colour=MARK)


def states(diagnosis: Diagnosis) -> ReportFigure:
    """A row of panels for each side."""
    planes = [(side, plane) for side in diagnosis.sides for plane in side.planes]
    columns = len(diagnosis.sides[0].planes)
    figure, grid = panels([f"layer {plane.layer - 1}" for _, plane in planes], columns=columns, height=1.5, alike=False)
    for plot, (_, plane) in zip(grid, planes, strict=True):
        x, y = zip(*plane.points, strict=True)
        dots = plot.scatter(x, y, c=plane.positions, cmap="viridis", s=2, linewidths=0, rasterized=True)
        plot.set_xticks([])
        plot.set_yticks([])
    for plot, side in zip(grid[::columns], diagnosis.sides, strict=True):
        plot.set_ylabel(name_of(side.line), fontsize=SMALL)
    figure.colorbar(dots, ax=grid, label="position", shrink=0.8).ax.tick_params(labelsize=SMALL)
    caption = "Hidden states after some layers, in the plane in which they vary most. Dark: the beginning of the text."
    rows = [(s.line, p.layer - 1, at, *xy) for s, p in planes for at, xy in zip(p.positions, p.points, strict=True)]
    return ReportFigure("states", caption, figure, ("extension", "layer", "position", "x", "y"), tuple(rows))


def bias_terms(diagnosis: Diagnosis) -> ReportFigure:
    """Of the base model, with a panel for some layers."""
    side = next(side for side in diagnosis.sides if side.terms)
    terms = side.terms
    names = ("q k", "a k (query's bias)", "q b (key's bias)", "a b (both biases)")
    chosen = some_layers(len(terms[0].layers)) if terms else []
    figure, grid = panels([f"layer {layer}" for layer in chosen], columns=2, height=1.4)
    for plot, layer in zip(grid, chosen, strict=True):
        for name, curves, style in zip(names, terms or (), lines(), strict=False):
            plot.plot(curves.at, curves.layers[layer], label=named(name), **style)
        _distances(plot, diagnosis)
        mark(plot, diagnosis.facts.trained_len)
    for plot in grid[-2:]:
        plot.set_xlabel("distance of the key", fontsize=SMALL)
    legend(figure, grid[0])
    caption = f"The four terms of the product of queries and keys that have biases, by distance ({name_of(side.line)})."
    rows = [(name, *row) for name, curves in zip(names, terms or (), strict=True) for row in _rows(curves)]
    return ReportFigure("bias_terms", caption, figure, ("term", "layer", "distance", "product"), tuple(rows))


def _rows(curves: Curves) -> list[tuple[Any, ...]]:
    """Layer, position or distance, value."""
    return [(layer, *pair) for layer, curve in enumerate(curves.layers) for pair in zip(curves.at, curve, strict=True)]
