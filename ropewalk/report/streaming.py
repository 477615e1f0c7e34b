"""What reading a long text came to: a table for the terminal, a figure, and the numbers as JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from rich.table import Table

from ropewalk.evaluation.metrics.streaming import StreamResult, StreamSection
from ropewalk.folders import replacing, write_text
from ropewalk.report.drawing import WIDTH, ReportFigure, written
from ropewalk.report.tables import size
from ropewalk.spec import Json

ROWS = 8  # of the table


def table(found: StreamResult) -> Table:
    """All stretches, several in each row."""
    drawn = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("tokens read", "loss", "accuracy", "ms a token", "cache"):
        drawn.add_column(name, justify="right")
    for each in _few(found.stretches):
        cells = f"{each.stop:,}", f"{each.loss:.3f}", f"{each.accuracy:.3f}", f"{each.milliseconds:.3f}"
        drawn.add_row(*cells, size(each.cache_bytes))
    return drawn


def _few(stretches: Sequence[StreamSection]) -> list[StreamSection]:
    """The means of as many rows as there is room for."""
    begins = [1, *(each.stop for each in stretches)]  # the first token is read and not told
    sizes = [stop - begin for begin, stop in pairwise(begins)]
    cuts = [round(len(stretches) * row / ROWS) for row in range(ROWS + 1)]
    return [_together(stretches[a:b], sizes[a:b]) for a, b in pairwise(cuts) if a < b]


def _together(own: Sequence[StreamSection], sizes: Sequence[int]) -> StreamSection:
    def mean(values: Iterable[float]) -> float:
        return sum(size * value for size, value in zip(sizes, values, strict=True)) / sum(sizes)

    loss, accuracy = mean(each.loss for each in own), mean(each.accuracy for each in own)
    return StreamSection(own[-1].stop, loss, accuracy, mean(each.milliseconds for each in own), own[-1].cache_bytes)


def summary(found: StreamResult) -> list[str]:
    """In words."""
    lines = [
        f"{found.tokens:,} tokens in {found.seconds:.1f} s ({found.processor_seconds:.1f} s of processor): "
        f"{1000 * found.seconds / found.tokens:.3f} ms a token",
        f"loss {found.loss:.3f} nats a token, {found.bits_per_byte:.3f} bits a byte, accuracy {found.accuracy:.3f}",
        f"cache {size(found.cache_bytes)} at most" + _process(found),
    ]
    if found.rounds > 1:
        lines.append(
            f"the corpus was used up and begun again: {found.rounds:.1f} rounds of {found.documents} documents"
        )
    return lines


def _process(found: StreamResult) -> str:
    return f", the whole process {size(found.process_bytes)}" if found.process_bytes else ""


def write_streamed(found: StreamResult, folder: str | Path, *, trained_len: int, told: Json) -> Path:
    """`stream.json` with what was asked (`told`), the figure as PNG and SVG, and its numbers as CSV."""
    out = Path(folder)
    numbers = told | {"trained_len": trained_len} | found.to_json()
    with replacing(out) as place:
        written(figure(found, trained_len), place)
        write_text(place / "stream.json", json.dumps(numbers, indent=1) + "\n")
    return out / "stream.json"


def figure(found: StreamResult, trained_len: int) -> ReportFigure:
    """Loss, time and cache against the position, one below the other."""
    drawn = Figure(figsize=(WIDTH, 6.0), layout="constrained")
    places = [each.stop for each in found.stretches]
    columns = (
        ("loss, nats per token", [each.loss for each in found.stretches]),
        ("ms per token", [each.milliseconds for each in found.stretches]),
        ("cache, MiB", [each.cache_bytes / 2**20 for each in found.stretches]),
    )
    for row, (label, values) in enumerate(columns):
        axes = drawn.add_subplot(len(columns), 1, row + 1)
        axes.plot(places, values, color="#1b6ca8", linewidth=1.4)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.axvline(trained_len, color="black", linewidth=0.8, linestyle=(0, (1, 2)))
        axes.grid(alpha=0.25)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M
    axes.set_xlabel("position in the text")
    caption = "Loss, time and cache by position in one long text; the trained length is marked."
    return ReportFigure(
        "stream", caption, drawn, StreamSection._fields, tuple(tuple(each) for each in found.stretches), "stream"
    )
