"""Figures of what methods do by their formulas alone: the decay of attention, and the rotations of each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor

from ropewalk.extension.extension import Extension
from ropewalk.measure.diagnostics.attention_weights import decay
from ropewalk.measure.diagnostics.pass_states import PairAngles, pair_angles
from ropewalk.measure.report.drawing.build import axis_across, line_chart, spanning
from ropewalk.measure.report.drawing.charts import Chart, Panel, ReportFigure, Series
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.html_page import PagePart
from ropewalk.methods.facts import Facts

PANEL_BINS = 96  # of distance, in a panel
PAIRS_SHOWN = 9  # pairs in a table

ABOUT = "What the methods do by their formulas alone, whatever the model has learned."

Extensions = Mapping[str, Extension]  # by the line that names them


def formulas(extensions: Extensions, facts: Facts, length: int, keys: Mapping[str, int]) -> PagePart:
    """Both figures, for texts of a length; `keys` are the styles of the extensions on their page."""
    drawn = (figure(extensions, facts, length, keys) for figure in (rotations_by_pair, decay_by_distance))
    return PagePart("formulas", ABOUT, tuple(drawn))


def decay_by_distance(extensions: Extensions, facts: Facts, length: int, keys: Mapping[str, int]) -> ReportFigure:
    """A panel for each method: mean and range over bins of distances."""
    numbers: list[tuple[Any, ...]] = []
    curves = []
    for line, extension in extensions.items():
        rows = _binned(decay(extension, facts, length))
        x, y, low, high = zip(*rows, strict=True)
        curves.append(Series(name_of(line), keys[line], x, y, low, high, look="plain"))
        numbers += [(line, *row) for row in rows]
    across = axis_across("distance of the key, tokens", curves[0].x)
    up = spanning("logit of equal query and key", [end for one in curves for end in (*one.low, *one.high)])
    marks = ((float(facts.trained_len), ""),) if facts.trained_len <= across.high else ()
    chart = Chart(
        kind="lines",
        panels=tuple(Panel(across, up, (one,), name=one.name, key=one.key, marks=marks) for one in curves),
        columns=min(len(curves), 5),
        narrow_columns=2,
        height=150.0,
    )
    caption = (
        f"The logit of a query and an equal key, by their distance, for the last of {length:,} tokens: the line is"
        " the mean, the band the range. There is no line where keys are out of reach. The dotted line is the trained"
        " length."
    )
    question = "How does attention fall with distance?"
    head = ("extension", "distance", "mean", "low", "high")
    return ReportFigure("decay_by_distance", question, caption, chart, head, tuple(numbers))


def _binned(by_distance: Tensor) -> list[tuple[float, float, float, float]]:
    """Middle, mean, lowest and highest value of bins of equal width; NaN where all keys are out of reach."""
    count = min(PANEL_BINS, len(by_distance))
    edges = [round(n * len(by_distance) / count) for n in range(count + 1)]
    return [((first + last - 1) / 2, *_extent(by_distance[first:last])) for first, last in pairwise(edges)]


def _extent(values: Tensor) -> tuple[float, float, float]:
    reached = values[~values.isnan()]
    if not len(reached):
        return math.nan, math.nan, math.nan
    return float(reached.mean()), float(reached.min()), float(reached.max())


def rotations_by_pair(extensions: Extensions, facts: Facts, length: int, keys: Mapping[str, int]) -> ReportFigure:
    """How much further each pair rotates than in training; methods with equal rotations share a line."""
    by_line = {line: pair_angles(extension, facts, length) for line, extension in extensions.items()}
    lines = [
        Series(
            ", ".join(map(name_of, names)),
            keys[names[0]],
            tuple(map(float, range(len(curve)))),
            curve,
            also=tuple(keys[name] for name in names[1:]),
        )
        for curve, names in _by_curve(by_line).items()
    ]
    complete = sum(pair.turns_trained >= 1 for pair in next(iter(by_line.values())))
    chart = line_chart(
        lines,
        across="pair of dimensions, fastest first",
        up="rotations in the text / in training",
        marks=[(complete - 0.5, "no full rotation from here on")],
        tokens=False,
        kind="log" if all(value > 0 for line in lines for value in line.y) else "even",
    )
    head = ("extension", *PairAngles._fields, "unseen")
    rows = [(line, *pair, pair.unseen) for line, pairs in by_line.items() for pair in pairs]
    caption = (
        f"Rotations of each pair of dimensions in {length:,} tokens, divided by those in training on"
        f" {facts.trained_len:,}. Right of the dotted line a pair has no full rotation in training: above 1 it meets"
        " angles that training did not have."
    )
    question = "Which pairs meet angles that training did not have?"
    return ReportFigure("turns_by_pair", question, caption, chart, head, tuple(rows), tuple(_table(by_line)))


def _by_curve(by_line: Mapping[str, list[PairAngles]]) -> dict[tuple[float, ...], list[str]]:
    """The names of the methods of each curve."""
    curves: dict[tuple[float, ...], list[str]] = {}
    for line, pairs in by_line.items():
        curve = tuple(round(pair.turns_asked / pair.turns_trained, 6) for pair in pairs)
        curves.setdefault(curve, []).append(line)
    return curves


def _table(by_line: Mapping[str, list[PairAngles]]) -> list[tuple[str, ...]]:
    """Some pairs of each method, as text."""
    rows = []
    for line, pairs in by_line.items():
        step = max((len(pairs) - 1) // (PAIRS_SHOWN - 1), 1)
        for pair in dict.fromkeys([*pairs[:-1:step], pairs[-1]]):
            numbers = (f"{number:.3g}" for number in pair[1:])
            rows.append((name_of(line), str(pair.pair), *numbers, "yes" if pair.unseen else ""))
    return rows
