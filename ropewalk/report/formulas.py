"""Figures of what methods do by themselves, whatever the model: attention's decay, and turns of each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor

from ropewalk.evaluation.diagnostics import PairAngles, decay, turns
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.report.drawing import LETTERS, ReportFigure, axes, legend, lines, mark, named, panels

BINS = 96  # of distance, in a panel
SHOWN = 9  # pairs in a table

FORMULAS = "formulas"  # the section of both

Extensions = Mapping[str, Extension]  # by the line that names them


def formulas(extensions: Extensions, facts: Facts, length: int) -> list[ReportFigure]:
    """Both figures, for texts of a length."""
    return [decay_by_distance(extensions, facts, length), turns_by_pair(extensions, facts, length)]


def decay_by_distance(extensions: Extensions, facts: Facts, length: int) -> ReportFigure:
    """A panel for each method: the mean over distances that lie together, and between which values it swings."""
    figure, grid = panels(list(extensions), columns=2, height=1.25)
    numbers: list[tuple[Any, ...]] = []
    for own, (line, extension) in zip(grid, extensions.items(), strict=True):
        rows = _binned(decay(extension, facts, length))
        at, mean, low, high = zip(*rows, strict=True)
        own.fill_between(at, low, high, color="#c8c8c8", linewidth=0)
        own.plot(at, mean, color="black", linewidth=1.3, marker=".", markersize=1.5)  # a bin may stand alone
        mark(own, facts.trained_len)
        numbers += [(line, *row) for row in rows]
    figure.supxlabel("distance of the key", fontsize=LETTERS)
    figure.supylabel("logit of equal vectors", fontsize=LETTERS)
    caption = (
        f"What is left of a logit at a distance when query and key are one vector, at the end of {length:,} tokens, by"
        " the method's formula alone: line the mean, grey the range it swings in, nothing where a key is out of reach."
        " The trained length is marked."
    )
    return ReportFigure(
        "decay_by_distance", caption, figure, ("extension", "distance", "mean", "low", "high"), tuple(numbers), FORMULAS
    )


def _binned(by_distance: Tensor) -> list[tuple[float, float, float, float]]:
    """Middle, mean, lowest and highest of bins of equal width; NaN where nothing in one is within reach."""
    count = min(BINS, len(by_distance))
    edges = [round(n * len(by_distance) / count) for n in range(count + 1)]
    return [((first + last - 1) / 2, *_extent(by_distance[first:last])) for first, last in pairwise(edges)]


def _extent(values: Tensor) -> tuple[float, float, float]:
    seen = values[~values.isnan()]
    return (float(seen.mean()), float(seen.min()), float(seen.max())) if len(seen) else (math.nan, math.nan, math.nan)


def turns_by_pair(extensions: Extensions, facts: Facts, length: int) -> ReportFigure:
    """How much further each pair turns than it did in training; methods that ask for the same share a line."""
    figure, own = axes("pair, fastest first", "turns asked for, over turns trained")
    found = {line: turns(extension, facts, length) for line, extension in extensions.items()}
    for (asked, names), style in zip(_alike(found).items(), lines(), strict=False):
        own.plot(asked, label=named(_listed(names)), **style)
    young = sum(pair.turns_trained >= 1 for pair in next(iter(found.values())))
    own.axvspan(young - 0.5, facts.rotating / 2 - 0.5, color="#e4e4e4", linewidth=0, zorder=0)
    own.axhline(1, color="#888888", linewidth=0.8, zorder=0.5)
    own.set_yscale("symlog", base=2, linthresh=0.125)
    ticks = [0.125 * 2**n for n in range(4 + max(1, math.ceil(math.log2(length / facts.trained_len))))]
    own.set_yticks([0, *ticks], ["0", *(f"{tick:g}x" for tick in ticks)])
    own.set_ylim(0, 1.3 * ticks[-1])
    legend(figure, own, columns=1)
    head = ("extension", *PairAngles._fields, "unseen")
    rows = [(line, *pair, pair.unseen) for line, pairs in found.items() for pair in pairs]
    caption = (
        f"How far each pair of dimensions turns in {length:,} tokens, over how far it turned in training on"
        f" {facts.trained_len:,}. Grey: pairs that never came round in training, for which anything above 1 is an angle"
        " never seen."
    )
    return ReportFigure("turns_by_pair", caption, figure, head, tuple(rows), FORMULAS, tuple(_table(found)))


def _alike(found: Mapping[str, list[PairAngles]]) -> dict[tuple[float, ...], list[str]]:
    """The names of the methods behind each curve."""
    curves: dict[tuple[float, ...], list[str]] = {}
    for line, pairs in found.items():
        curve = tuple(round(pair.turns_asked / pair.turns_trained, 6) for pair in pairs)
        curves.setdefault(curve, []).append(line)
    return curves


def _listed(names: list[str]) -> str:
    """Names in rows that a legend has room for."""
    rows = [""]
    for name in names:
        joined = f"{rows[-1]}, {name}" if rows[-1] else name
        rows = [*rows[:-1], joined] if len(joined) <= 60 else [*rows, name]
    return "\n".join(rows)


def _table(found: Mapping[str, list[PairAngles]]) -> list[tuple[str, ...]]:
    """Some pairs of each method, in words."""
    rows = []
    for line, pairs in found.items():
        step = max((len(pairs) - 1) // (SHOWN - 1), 1)
        for pair in dict.fromkeys([*pairs[:-1:step], pairs[-1]]):
            numbers = (f"{number:.3g}" for number in pair[1:])
            rows.append((line, str(pair.pair), *numbers, "yes" if pair.unseen else ""))
    return rows
