"""Figures of a comparison. Lines differ by dash and marker as well as by colour: they are told apart in grey."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from ropewalk.evaluation.comparison import Comparison, Contender

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


def figures(comparison: Comparison) -> list[Drawn]:
    """Every figure for which there are numbers."""
    found = [loss_by_length(comparison), loss_by_position(comparison)]
    measured = {row.task.name for each in comparison.contenders for row in each.rows}
    if "passkey" in measured:
        found += [passkey_by_length(comparison), passkey_by_depth(comparison)]
    if "repetition" in measured:
        found.append(repetition_by_length(comparison))
    return found


def loss_by_length(comparison: Comparison) -> Drawn:
    """The same last tokens under growing context."""
    caption = "Loss of the same last tokens, with more and more text before them. The trained length is marked."
    return _by_length(comparison, "loss_by_length", caption, "context", "loss", "loss, nats per token")


def passkey_by_length(comparison: Comparison) -> Drawn:
    """The share of pass keys found."""
    caption = "Pass keys found, over all depths."
    return _by_length(comparison, "passkey_by_length", caption, "passkey", "right", "share found")


def repetition_by_length(comparison: Comparison) -> Drawn:
    """Accuracy on text told again."""
    caption = "Next-token accuracy where a text of half the trained length is told again and again."
    return _by_length(comparison, "repetition_by_length", caption, "repetition", "accuracy", "accuracy")


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
    return Drawn("loss_by_position", caption, figure, ("extension", "position", "loss"), tuple(numbers))


def passkey_by_depth(comparison: Comparison) -> Drawn:
    """One small map for each contender: length across, depth downwards."""
    count = len(comparison.contenders)
    columns = min(4, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH, 1.9 * rows + 0.4), layout="constrained")
    numbers: list[tuple[Any, ...]] = []
    for place, each in enumerate(comparison.contenders):
        axes = figure.add_subplot(rows, columns, place + 1)
        shares, depths = _grid(each, comparison.lengths)
        axes.imshow(shares, vmin=0, vmax=1, cmap="Greys_r", aspect="auto")
        axes.set_title(each.line, fontsize=8)
        axes.set_xticks(range(len(comparison.lengths)), [f"{n:,}" for n in comparison.lengths], fontsize=6)
        axes.set_yticks(range(len(depths)), [f"{100 * depth:.0f}%" for depth in depths], fontsize=6)
        numbers += [
            (each.line, length, depth, shares[down][across])
            for down, depth in enumerate(depths)
            for across, length in enumerate(comparison.lengths)
        ]
    caption = "Pass keys by length (across) and depth (down): white is found, black is not."
    head = ("extension", "length", "depth", "right")
    return Drawn("passkey_by_depth", caption, figure, head, tuple(numbers))


def _grid(each: Contender, lengths: Sequence[int]) -> tuple[list[list[float]], list[float]]:
    rows = [row for length in lengths if (row := each.at("passkey", length))]
    by_length = [{sample["depth"]: float(sample["right"]) for sample in row.samples} for row in rows]
    depths = sorted({depth for found in by_length for depth in found})
    return [[found.get(depth, 0.0) for found in by_length] for depth in depths], depths


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
    _finish(axes, comparison)
    axes.set_xscale("log", base=2)
    axes.set_xticks(comparison.lengths, [f"{length:,}" for length in comparison.lengths])
    return Drawn(name, caption, figure, ("extension", "length", number, "low", "high"), tuple(numbers))


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
