"""The report of `stream`: a table for the terminal, a figure, and the numbers as JSON and CSV."""

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
CAPTION = "loss, accuracy, ms per token: in the tokens since the row above"


def table(result: StreamResult) -> Table:
    """All sections, several in each row."""
    drawn = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("tokens read", "loss", "accuracy", "ms per token", "cache"):
        drawn.add_column(name, justify="right")
    for row in _rows(result.stretches):
        cells = f"{row.stop:,}", f"{row.loss:.3f}", f"{row.accuracy:.3f}", f"{row.milliseconds:.3f}"
        drawn.add_row(*cells, size(row.cache_bytes))
    return drawn


def _rows(sections: Sequence[StreamSection]) -> list[StreamSection]:
    """The sections averaged into at most ROWS rows."""
    begins = [1, *(section.stop for section in sections)]  # the first token is read but not predicted
    sizes = [stop - begin for begin, stop in pairwise(begins)]
    cuts = [round(len(sections) * row / ROWS) for row in range(ROWS + 1)]
    return [_averaged(sections[a:b], sizes[a:b]) for a, b in pairwise(cuts) if a < b]


def _averaged(sections: Sequence[StreamSection], sizes: Sequence[int]) -> StreamSection:
    def mean(values: Iterable[float]) -> float:
        return sum(size * value for size, value in zip(sizes, values, strict=True)) / sum(sizes)

    loss, accuracy = mean(section.loss for section in sections), mean(section.accuracy for section in sections)
    milliseconds, last = mean(section.milliseconds for section in sections), sections[-1]
    return StreamSection(last.stop, loss, accuracy, milliseconds, last.cache_bytes)


def summary(result: StreamResult) -> list[str]:
    """The means over the whole text, in words."""
    lines = [
        f"{result.tokens:,} tokens in {result.seconds:.1f} s ({result.processor_seconds:.1f} s of processor time): "
        f"{1000 * result.seconds / result.tokens:.3f} ms per token",
        f"loss {result.loss:.3f} nats per token, {result.bits_per_byte:.3f} bits per byte,"
        f" accuracy {result.accuracy:.3f}",
        f"largest cache {size(result.cache_bytes)}" + _process(result),
    ]
    if result.rounds > 1:
        lines.append(f"the corpus was too short: its {result.documents} documents were read {result.rounds:.1f} times")
    return lines


def _process(result: StreamResult) -> str:
    return f", whole process {size(result.process_bytes)}" if result.process_bytes else ""


def write_streamed(result: StreamResult, folder: str | Path, *, trained_len: int, settings: Json) -> Path:
    """`stream.json` with the settings, the figure as PNG and SVG, and its numbers as CSV."""
    out = Path(folder)
    numbers = settings | {"trained_len": trained_len} | result.to_json()
    with replacing(out) as place:
        written(figure(result, trained_len), place)
        write_text(place / "stream.json", json.dumps(numbers, indent=1) + "\n")
    return out / "stream.json"


def figure(result: StreamResult, trained_len: int) -> ReportFigure:
    """Loss, time and cache against the position, one below the other."""
    drawn = Figure(figsize=(WIDTH, 6.0), layout="constrained")
    sections = result.stretches
    places = [section.stop for section in sections]
    columns = (
        ("loss, nats per token", [section.loss for section in sections]),
        ("ms per token", [section.milliseconds for section in sections]),
        ("cache, MiB", [section.cache_bytes / 2**20 for section in sections]),
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
    caption = "Loss, time and cache by position in one long text. The dotted line is the trained length."
    return ReportFigure("stream", caption, drawn, StreamSection._fields, tuple(map(tuple, sections)), "stream")
