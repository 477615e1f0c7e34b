"""Figures of a diagnosis: lines of the base and the extended model, and maps of all their layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from ropewalk.measure.diagnostics.attention_weights import NEAR_KEYS, SINKS
from ropewalk.measure.diagnostics.diagnosis import DiagnosedSide, Diagnosis
from ropewalk.measure.diagnostics.pass_states import Curves
from ropewalk.measure.report.drawing.build import axis_across, line_chart, map_panel, spanning, trained_mark
from ropewalk.measure.report.drawing.charts import BASE_KEY, OTHERS, Chart, Panel, ReportFigure, Series, styles_of
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.formulas import formulas
from ropewalk.measure.report.html_page import PagePart

DOTS = 500  # hidden states in a panel
SHADES = (1.0, 0.3, 0.45, 0.6, 0.8, 1.0)  # of the sixths of a text
POSITION, DISTANCE = "position in the text, tokens", "distance of the key, tokens"
LOSS = "nats per token"
MEAN_OVER_LAYERS = "By the position of the query: the mean over layers."
ABOUT_NEAR = "Attention that spreads over far keys is taken from the near ones."
ABOUT_LOGITS = "Distances that did not occur in training can give logits that did not either."
ABOUT_ENTROPY = "Over how many keys a query spreads its attention: n equal shares have an entropy of ln(n)."
ABOUT_SINKS = "Models give attention that they need nowhere to the first tokens, and may break without them."
ABOUT_TERMS = "The four terms of a product whose queries and keys have biases."
TERMS = ("q k", "a k (query's bias)", "q b (key's bias)", "a b (both biases)")


def keys_of(diagnosis: Diagnosis) -> dict[str, int]:
    """The style of each side on the whole page, by its line."""
    base, *others = diagnosis.sides
    return {base.line: BASE_KEY} | styles_of([side.line for side in others])


def headline(diagnosis: Diagnosis) -> list[ReportFigure]:
    """Where the extension departs from the base model; nothing where there is no extension."""
    return [change(diagnosis)] if diagnosis.changes else []


def parts(diagnosis: Diagnosis) -> list[PagePart]:
    """Every figure for which there are numbers, without that of the headline."""
    extensions = {side.line: side.extension for side in diagnosis.sides}
    terms = PagePart("biases of queries and keys", ABOUT_TERMS, tuple(bias_terms(diagnosis)))
    return [
        PagePart("loss", "How well each token is predicted, by its position.", (loss(diagnosis),)),
        PagePart("attention on near keys", ABOUT_NEAR, mass_of_last(diagnosis)),
        PagePart("logits", ABOUT_LOGITS, logits_by_distance(diagnosis)),
        PagePart("entropy", ABOUT_ENTROPY, entropy(diagnosis)),
        PagePart("sinks", ABOUT_SINKS, (*mass_of_first(diagnosis), sinks(diagnosis))),
        PagePart(
            "hidden states", "Tokens beyond the trained length may leave the region of training.", (states(diagnosis),)
        ),
        *([terms] if terms.figures else []),
        formulas(extensions, diagnosis.facts, diagnosis.length, keys_of(diagnosis)),
    ]


def change(diagnosis: Diagnosis) -> ReportFigure:
    """The loss minus the base model's, by position."""
    curves = {diagnosis.sides[0].line: (0.0,) * len(diagnosis.sides[0].losses), **diagnosis.changes}
    words = (
        "Where in a text does the extension depart from the base model?",
        f"Loss minus the base model's at the same position, in texts of {diagnosis.length:,} tokens."
        " Below 0 is better.",
    )
    up = f"loss minus the base model's, {LOSS}"
    return _by_position(diagnosis, "loss_change", words, up, curves, keys_of(diagnosis), begin=1, signed=True)


def loss(diagnosis: Diagnosis) -> ReportFigure:
    """By position, both sides in one plot."""
    curves = {side.line: side.losses for side in diagnosis.sides}
    words = "How well is each token predicted?", f"Loss by position, in texts of {diagnosis.length:,} tokens."
    return _by_position(diagnosis, "loss", words, f"loss, {LOSS}", curves, keys_of(diagnosis), begin=1)


def sinks(diagnosis: Diagnosis) -> ReportFigure:
    """By position, of a stream whose first tokens are replaced or removed, minus the one that keeps them."""
    reach = diagnosis.stream.reach_or_causal
    kept = {"kept": (0.0,) * len(diagnosis.streams.kept)}
    keys = {"kept": BASE_KEY - 1} | {name: key for key, name in enumerate(diagnosis.streams.changes, OTHERS)}
    words = (
        "What does a stream lose without its first tokens?",
        f"Loss by position of a stream ({reach}), minus that with its first tokens: with line breaks in their place,"
        " and without them, with a window of as many keys.",
    )
    begin, up = getattr(reach, "n_sink", 1), f"loss minus that with sinks, {LOSS}"
    curves = {**kept, **diagnosis.streams.changes}
    drawn = _by_position(diagnosis, "sinks", words, up, curves, keys, begin=begin, signed=True)
    losses = chain.from_iterable(diagnosis.streams)
    rows = [(*row, value) for row, value in zip(drawn.numbers, losses, strict=True)]
    return drawn._replace(head=("curve", "position", "change", "loss"), numbers=tuple(rows))


def _by_position(
    diagnosis: Diagnosis,
    name: str,
    words: tuple[str, str],
    up: str,
    curves: Mapping[str, tuple[float, ...]],
    keys: Mapping[str, int],
    *,
    begin: int,
    signed: bool = False,
) -> ReportFigure:
    """Curves in bins over positions from `begin` on."""
    lines, numbers = [], list[tuple[Any, ...]]()
    for line, curve in curves.items():
        width = (diagnosis.length - begin) / len(curve)
        at = tuple(begin + (n + 0.5) * width for n in range(len(curve)))
        lines.append(Series(name_of(line), keys[line], at, curve))
        numbers += [(line, *pair) for pair in zip(at, curve, strict=True)]
    chart = line_chart(
        lines,
        across=POSITION,
        up=up,
        marks=[trained_mark(diagnosis.facts.trained_len)],
        to=diagnosis.length,
        signed=signed,
        log="signed log" if signed else "log",
    )
    head = ("curve", "position", "change" if signed else "loss")
    return ReportFigure(name, *words, chart, head, tuple(numbers))


Figures: TypeAlias = tuple[ReportFigure, ...]


def entropy(diagnosis: Diagnosis) -> Figures:
    """Over how many keys a query spreads its attention."""
    words = "Is attention diluted?", "Entropy of attention by the position of the query: the mean over layers."
    return _by_query(diagnosis, "entropy", words, "entropy, nats", lambda side: side.entropy)


def mass_of_last(diagnosis: Diagnosis) -> Figures:
    """Attention on near keys."""
    words = f"How much attention stays on the last {NEAR_KEYS} keys?", MEAN_OVER_LAYERS
    return _by_query(diagnosis, "mass_of_last", words, "share of attention", lambda side: side.last)


def mass_of_first(diagnosis: Diagnosis) -> Figures:
    """Attention on the sinks."""
    words = f"How much attention is on the first {SINKS} keys of the text?", MEAN_OVER_LAYERS
    return _by_query(diagnosis, "mass_of_first", words, "share of attention", lambda side: side.first, digits=3)


def _by_query(
    diagnosis: Diagnosis,
    name: str,
    words: tuple[str, str],
    up: str,
    of: Callable[[DiagnosedSide], Curves],
    *,
    digits: int = 2,
) -> Figures:
    """Lines of the means over layers, and a map of all layers."""
    keys, marks = keys_of(diagnosis), [trained_mark(diagnosis.facts.trained_len)]
    means = {side.line: _mean(of(side)) for side in diagnosis.sides}
    lines = [Series(name_of(side.line), keys[side.line], of(side).at, means[side.line]) for side in diagnosis.sides]
    chart = line_chart(lines, across=POSITION, up=up, marks=marks, to=diagnosis.length, digits=digits)
    what = up.split(",")[0]
    at = [(side.line, *pair) for side in diagnosis.sides for pair in zip(of(side).at, means[side.line], strict=True)]
    numbers = tuple((side.line, *row) for side in diagnosis.sides for row in _rows(of(side)))
    return (
        ReportFigure(name, *words, chart, ("extension", "position", what), tuple(at)),
        _map(diagnosis, name, up, of, POSITION, ("extension", "layer", "position", what), numbers),
    )


def _map(
    diagnosis: Diagnosis,
    name: str,
    what: str,
    of: Callable[[DiagnosedSide], Curves],
    across: str,
    head: tuple[str, ...],
    numbers: tuple[tuple[Any, ...], ...],
) -> ReportFigure:
    keys, (mark, _) = keys_of(diagnosis), trained_mark(diagnosis.facts.trained_len)
    panels = []
    for side in diagnosis.sides:
        curves = of(side)
        x = axis_across(across, curves.at, log=across == DISTANCE)
        panel = map_panel(name_of(side.line), keys[side.line], x, curves.at, curves.layers)
        panels.append(panel._replace(marks=((mark, ""),) if not x.beyond(mark) else ()))
    known = [value for panel in panels for row in panel.cells for value in row if math.isfinite(value)] or [0.0]
    height = min(max(120.0, 20.0 * len(panels[0].cells)), 260.0)
    chart = Chart(kind="fields", panels=tuple(panels), height=height, shades=(min(known), max(known)))
    caption = f"{what.capitalize()}, layer by layer from the top. The dashed line is the trained length."
    return ReportFigure(f"{name}_by_layer", f"{what.capitalize()} in every layer", caption, chart, head, numbers)


def logits_by_distance(diagnosis: Diagnosis) -> Figures:
    """The largest logit of each layer, and the means."""
    keys, lines = keys_of(diagnosis), []
    for side in diagnosis.sides:
        name, growth, key = name_of(side.line), side.growth, keys[side.line]
        lines.append(Series(f"{name}: largest", key, growth.largest.at, _mean(growth.largest)))
        lines.append(Series(f"{name}: mean", key, growth.mean.at, _mean(growth.mean), look="thin"))
    marks = [trained_mark(diagnosis.facts.trained_len)]
    chart = line_chart(lines, across=DISTANCE, up="logit", marks=marks, across_log=True, digits=1)
    words = (
        "Do logits of far keys exceed those of training?",
        "Logits by distance: the largest over heads and query rows, and the mean, averaged over layers.",
    )
    head = ("extension", "distance", "largest", "mean")
    means = tuple(
        (side.line, *row)
        for side in diagnosis.sides
        for row in zip(side.growth.largest.at, _mean(side.growth.largest), _mean(side.growth.mean), strict=True)
    )
    layers = ("extension", "layer", "distance", "mean", "spread", "largest")
    grown = tuple(_grown(diagnosis))
    return (
        ReportFigure("logits_by_distance", *words, chart, head, means),
        _map(diagnosis, "logits", "largest logit", lambda side: side.growth.largest, DISTANCE, layers, grown),
    )


def _mean(curves: Curves) -> tuple[float, ...]:
    """The mean over layers, without those that have no number."""
    columns = [[value for value in values if value == value] for values in zip(*curves.layers, strict=True)]
    return tuple(sum(values) / len(values) if values else math.nan for values in columns)


def _grown(diagnosis: Diagnosis) -> list[tuple[Any, ...]]:
    rows = []
    for side in diagnosis.sides:
        for mean, spread, largest in zip(*map(_rows, side.growth), strict=True):
            rows.append((side.line, *mean, spread[-1], largest[-1]))
    return rows


def states(diagnosis: Diagnosis) -> ReportFigure:
    """A panel of dots for some layers of each side."""
    keys = keys_of(diagnosis)
    planes = [(side, plane) for side in diagnosis.sides for plane in side.planes]
    panels = []
    for side, plane in planes:
        x, y = (spanning("", values, room=0.04) for values in zip(*plane.points, strict=True))
        key, name = keys[side.line], f"{name_of(side.line)}, layer {plane.layer - 1}"
        panels.append(Panel(x, y, tuple(_sixths(plane.positions, plane.points, diagnosis.length, key)), name, key=key))
    columns = len(diagnosis.sides[0].planes)
    chart = Chart(kind="dots", panels=tuple(panels), columns=columns, narrow_columns=2, height=190.0, bare=True)
    caption = (
        "After some layers, in the plane in which they vary most. From pale to dark: from the beginning of the text to"
        " its end; its first sixth is in another colour."
    )
    words = "Do hidden states leave the region of training?", caption
    rows = [(s.line, p.layer - 1, at, *xy) for s, p in planes for at, xy in zip(p.positions, p.points, strict=True)]
    head = ("extension", "layer", "position", "x", "y")
    return ReportFigure("states", *words, chart, head, tuple(rows))


def _sixths(positions: Sequence[int], points: Sequence[tuple[float, float]], length: int, key: int) -> Iterator[Series]:
    """Every n-th token, in the shade of its sixth of the text; the first has another colour."""
    some = list(zip(positions, points, strict=True))[:: max(1, len(points) // DOTS)]
    for part, alpha in enumerate(SHADES):
        dots = [place for at, place in some if min(len(SHADES) * at // length, len(SHADES) - 1) == part]
        if dots:
            x, y = map(tuple, zip(*dots, strict=True))
            colour, sizes = "shade" if part else "c1", (1.7,) * len(x)
            yield Series("", key, x, y, look="dots", sizes=sizes, colour=colour, alpha=alpha, marker=0)


def bias_terms(diagnosis: Diagnosis) -> Figures:
    """Of the base model: the mean over layers; nothing where queries and keys have no biases."""
    side = next((side for side in diagnosis.sides if side.terms), None)
    if side is None:
        return ()
    terms = side.terms or ()
    lines = [
        Series(name, OTHERS + key, curves.at, _mean(curves))
        for key, (name, curves) in enumerate(zip(TERMS, terms, strict=False))
    ]
    marks = [trained_mark(diagnosis.facts.trained_len)]
    chart = line_chart(lines, across=DISTANCE, up="product", marks=marks, across_log=True)
    words = (
        "Which term of the product keeps attention near?",
        f"The four terms by distance, averaged over layers ({name_of(side.line)}); the file has every layer.",
    )
    rows = [(name, *row) for name, curves in zip(TERMS, terms, strict=False) for row in _rows(curves)]
    head = ("term", "layer", "distance", "product")
    return (ReportFigure("bias_terms", *words, chart, head, tuple(rows)),)


def _rows(curves: Curves) -> list[tuple[Any, ...]]:
    """Layer, position or distance, value."""
    return [(layer, *pair) for layer, curve in enumerate(curves.layers) for pair in zip(curves.at, curve, strict=True)]
