"""Figures of what methods do by their formulas alone: the decay of attention, and the rotations of each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor

from ropewalk.evaluation.diagnostics import PairAngles, decay, pair_angles
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.report.drawing import LETTERS, ReportFigure, axes, legend, lines, mark, name_of, named, panels

BINS = 96  # of distance, in a panel
SHOWN = 9  # pairs in a table

FORMULAS = "formulas"  # the section of the page

Extensions = Mapping[str, Extension]  # by the line that names them


def formulas(extensions: Extensions, facts: Facts, length: int) -> list[ReportFigure]:
    """Both figures, for texts of a length."""
    return [decay_by_distance(extensions, facts, length), rotations_by_pair(extensions, facts, length)]


def decay_by_distance(extensions: Extensions, facts: Facts, length: int) -> ReportFigure:
    """A panel for each method: mean and range over bins of distances."""
    figure, grid = panels(list(map(name_of, extensions)), columns=2, height=1.25)
    numbers: list[tuple[Any, ...]] = []
    for plot, (line, extension) in zip(grid, extensions.items(), strict=True):
        rows = _binned(decay(extension, facts, length))
        at, mean, low, high = zip(*rows, strict=True)
        plot.fill_between(at, low, high, color="#c8c8c8", linewidth=0)
        plot.plot(at, mean, color="black", linewidth=1.3, marker=".", markersize=1.5)  # a bin may stand alone
        mark(plot, facts.trained_len)
        numbers += [(line, *row) for row in rows]
    figure.supxlabel("distance of the key", fontsize=LETTERS)
    figure.supylabel("logit of equal query and key", fontsize=LETTERS)
    caption = (
        f"The logit of a query and an equal key, by their distance, for the last of {length:,} tokens: the line is the"
        " mean, grey the range. There is no line where keys are out of reach. The dotted line is the trained length."
    )
    return ReportFigure(
        "decay_by_distance", caption, figure, ("extension", "distance", "mean", "low", "high"), tuple(numbers), FORMULAS
    )


def _binned(by_distance: Tensor) -> list[tuple[float, float, float, float]]:
    """Middle, mean, lowest and highest value of bins of equal width; NaN where all keys are out of reach."""
    count = min(BINS, len(by_distance))
    edges = [round(n * len(by_distance) / count) for n in range(count + 1)]
    return [((first + last - 1) / 2, *_extent(by_distance[first:last])) for first, last in pairwise(edges)]


def _extent(values: Tensor) -> tuple[float, float, float]:
    reached = values[~values.isnan()]
    if not len(reached):
        return math.nan, math.nan, math.nan
    return float(reached.mean()), float(reached.min()), float(reached.max())


def rotations_by_pair(extensions: Extensions, facts: Facts, length: int) -> ReportFigure:
    """How much further each pair rotates than in training; methods with equal rotations share a line."""
    figure, plot = axes("pair of dimensions, fastest first", "rotations in the text / in training")
    by_line = {line: pair_angles(extension, facts, length) for line, extension in extensions.items()}
    for (curve, names), style in zip(_by_curve(by_line).items(), lines(), strict=False):
        plot.plot(curve, label=named(_listed([name_of(name) for name in names])), **style)
    complete = sum(pair.turns_trained >= 1 for pair in next(iter(by_line.values())))
    plot.axvspan(complete - 0.5, facts.rotating / 2 - 0.5, color="#e4e4e4", linewidth=0, zorder=0)
    plot.axhline(1, color="#888888", linewidth=0.8, zorder=0.5)
    plot.set_yscale("symlog", base=2, linthresh=0.125)
    ticks = [0.125 * 2**n for n in range(4 + max(1, math.ceil(math.log2(length / facts.trained_len))))]
    plot.set_yticks([0, *ticks], ["0", *(f"{tick:g}x" for tick in ticks)])
    plot.set_ylim(0, 1.3 * ticks[-1])
    legend(figure, plot, columns=1)
    head = ("extension", *PairAngles._fields, "unseen")
    rows = [(line, *pair, pair.unseen) for line, pairs in by_line.items() for pair in pairs]
    caption = (
        f"Rotations of each pair of dimensions in {length:,} tokens, divided by those in training on"
        f" {facts.trained_len:,}. Grey: pairs without a full rotation in training; above 1 they meet angles that"
        " training did not have."
    )
    return ReportFigure("turns_by_pair", caption, figure, head, tuple(rows), FORMULAS, tuple(_table(by_line)))


def _by_curve(by_line: Mapping[str, list[PairAngles]]) -> dict[tuple[float, ...], list[str]]:
    """The names of the methods of each curve."""
    curves: dict[tuple[float, ...], list[str]] = {}
    for line, pairs in by_line.items():
        curve = tuple(round(pair.turns_asked / pair.turns_trained, 6) for pair in pairs)
        curves.setdefault(curve, []).append(line)
    return curves


def _listed(names: list[str]) -> str:
    """Names in rows that fit into a legend."""
    rows = [""]
    for name in names:
        joined = f"{rows[-1]}, {name}" if rows[-1] else name
        rows = [*rows[:-1], joined] if len(joined) <= 60 else [*rows, name]
    return "\n".join(rows)


def _table(by_line: Mapping[str, list[PairAngles]]) -> list[tuple[str, ...]]:
    """Some pairs of each method, as text."""
    rows = []
    for line, pairs in by_line.items():
        step = max((len(pairs) - 1) // (SHOWN - 1), 1)
        for pair in dict.fromkeys([*pairs[:-1:step], pairs[-1]]):
            numbers = (f"{number:.3g}" for number in pair[1:])
            rows.append((name_of(line), str(pair.pair), *numbers, "yes" if pair.unseen else ""))
    return rows
