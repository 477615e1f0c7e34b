"""Maps of all candidates: scores by length and by depth in the text, and the loss of the answer by depth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ropewalk.measure.comparison.comparison import Candidate, Comparison
from ropewalk.measure.metrics.correlation import BANDS, PositionBias, position_bias
from ropewalk.measure.metrics.intervals import Estimate, share
from ropewalk.measure.report.drawing.charts import ReportFigure, ShareCell, ShareMap, ShareRow
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.figures import keys_of, numbers_at
from ropewalk.measure.report.tables import estimated, ordered, short

FULL = 6.0  # nats per token, from which a cell has all of its colour

Place = tuple[int] | tuple[int, float]  # the length of a column, and the depth where there is one


def score_maps(comparison: Comparison, name: str) -> list[ReportFigure]:
    """The maps of the tasks of one name, which have a score: by depth where their samples have one."""
    rows = [row for candidate in comparison.candidates for row in candidate.rows if row.task.name == name]
    if not any("depth" in sample for row in rows for sample in row.samples):
        return [score_by_length(comparison, name)]
    return [score_by_length(comparison, name), score_by_depth(comparison, name), loss_by_depth(comparison, name)]


def score_by_length(comparison: Comparison, name: str) -> ReportFigure:
    """The score of a task; the mean over all tasks of that name, which alone has no interval."""
    titles = [task.title for task in comparison.tasks if task.name == name]
    headline = next(task.headline for task in comparison.tasks if task.name == name)
    estimates = numbers_at(comparison, titles[0], headline) if len(titles) == 1 else _means(comparison, name)
    cells = {line: {(length,): one for length, one in of.items()} for line, of in estimates.items()}
    over = "" if len(titles) == 1 else f", averaged over {', '.join(titles)}"
    return ReportFigure(
        f"{name}_by_length",
        "How many passkeys are found?" if name == "passkey" else f"How much of {name} is right?",
        f"Share correct, by length{over}.",
        ShareMap(
            rows=_rows(comparison, cells, [(length,) for length in comparison.lengths], _share_cell),
            groups=[(f"{length:,}", 1) for length in comparison.lengths],
            columns=(),
            above="tokens",
            ends=("0%", "100%"),
        ),
        ("extension", "length", "score" if len(titles) > 1 else headline, "low", "high"),
        tuple((line, *place, *one[:3]) for line, row in cells.items() for place, one in row.items()),
    )


def _means(comparison: Comparison, name: str) -> dict[str, dict[int, Estimate]]:
    return {
        candidate.line: {
            length: Estimate(score, -math.inf, math.inf, 1) for length, score in candidate.scores(name).items()
        }
        for candidate in comparison.candidates
    }


def score_by_depth(comparison: Comparison, name: str) -> ReportFigure:
    """Depths side by side in each length."""
    cells = {candidate.line: _by_depth(candidate, name) for candidate in comparison.candidates}
    places = sorted({place for row in cells.values() for place in row})
    depths = [sum(place[0] == length for place in places) for length in comparison.lengths]
    return ReportFigure(
        f"{name}_by_depth",
        f"Where in the text is {'a passkey' if name == 'passkey' else 'it'} found?",
        "Share correct, by length and by depth in the text: 0% is its beginning, far from the question.",
        ShareMap(
            rows=_rows(comparison, cells, places, _share_cell),
            groups=[(short(length), count) for length, count in zip(comparison.lengths, depths, strict=True) if count],
            columns=[f"{depth:.0%}" for _, depth in places],
            above="tokens, and depth in the text",
            ends=("missed", "found"),
        ),
        ("extension", "length", "depth", "right", "low", "high"),
        tuple((line, *place, *one[:3]) for line, row in cells.items() for place, one in sorted(row.items())),
    )


def _by_depth(candidate: Candidate, name: str) -> dict[tuple[int, float], Estimate]:
    """The share correct in each cell of length and depth."""
    cells: dict[tuple[int, float], list[bool]] = {}
    for row in candidate.rows:
        for sample in row.samples if row.task.name == name else ():
            cells.setdefault((row.length, sample["depth"]), []).append(bool(sample["right"]))
    return {cell: share(sum(right), len(right)) for cell, right in cells.items()}


def biases(candidate: Candidate) -> dict[str, dict[int, PositionBias]]:
    """The position bias of every task whose samples have a depth and a loss, by length."""
    by_task: dict[str, dict[int, PositionBias]] = {}
    for row in candidate.rows:
        if row.samples and {"depth", "loss"} <= row.samples[0].keys():
            by_task.setdefault(row.task.title, {})[row.length] = position_bias(row.samples)
    return by_task


def biases_json(candidate: Candidate) -> dict[str, Any]:
    """The same for JSON, with the intervals of all bands."""
    return {
        task: [{"length": length, **bias.to_json()} for length, bias in by_length.items()]
        for task, by_length in biases(candidate).items()
    }


def loss_by_depth(comparison: Comparison, name: str) -> ReportFigure:
    """Bands of depth side by side in each length."""
    of_task = {candidate.line: biases(candidate).get(name, {}) for candidate in comparison.candidates}
    lengths = [length for length in comparison.lengths if any(length in bias for bias in of_task.values())]
    cells = {
        line: {(length, band / BANDS): loss for length, bias in of.items() for band, loss in bias.bands.items()}
        for line, of in of_task.items()
    }
    places = [(length, band / BANDS) for length in lengths for band in range(BANDS)]
    return ReportFigure(
        f"{name}_loss_by_depth",
        f"Where in the text is the answer of {name} easy?",
        "Loss of the right answer in nats per token, by length and by depth in the text: 0% is its beginning, far from"
        " the question. The less colour the better; a row with more of it in its middle loses what stands there.",
        ShareMap(
            rows=_rows(comparison, cells, places, _loss_cell),
            groups=[(short(length), BANDS) for length in lengths],
            columns=[f"{depth:.0%}" for _, depth in places],
            above="tokens, and depth in the text from",
            ends=("0 nats", f"{FULL:g} or more"),
            shade="harm",
        ),
        ("extension", "length", "depth_from", "loss", "low", "high", "samples"),
        tuple((line, *place, *loss) for line, row in cells.items() for place, loss in row.items()),
    )


def _rows(
    comparison: Comparison,
    cells: Mapping[str, Mapping[Any, Estimate]],
    places: Sequence[Place],
    cell: Callable[[str, Place, Estimate | None], ShareCell],
) -> list[ShareRow]:
    """A row for each candidate, the lowest loss first."""
    keys = keys_of(comparison)
    return [
        ShareRow(
            name,
            keys[line],
            tuple(cell(f"{name}, {place[0]:,} tokens", place, cells[line].get(place)) for place in places),
        )
        for line in (candidate.line for candidate in ordered(comparison))
        for name in [name_of(line)]
    ]


def _share_cell(name: str, place: Place, score: Estimate | None) -> ShareCell:
    name += "".join(f", depth {depth:.0%}" for depth in place[1:])
    return (
        ShareCell(math.nan, f"{name}: not measured")
        if score is None
        else ShareCell(score.value, f"{name}: {estimated(score)}")
    )


def _loss_cell(name: str, place: Place, loss: Estimate | None) -> ShareCell:
    """A shade of the loss, with the loss in it."""
    depth = place[-1]
    name += f", depth {depth:.0%} to {depth + 1 / BANDS:.0%}"
    if loss is None or not math.isfinite(loss.value):
        return ShareCell(math.nan, f"{name}: {'not measured' if loss is None else 'no number'}")
    return ShareCell(min(loss.value / FULL, 1.0), f"{name}: {estimated(loss)} nats", f"{loss.value:.1f}")
