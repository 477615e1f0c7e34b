"""The report of `stream`: a table for the terminal, a page, and the numbers as JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from ropewalk.measure.metrics.streaming import StreamResult, StreamSection
from ropewalk.measure.report.drawing.build import line_chart, trained_mark
from ropewalk.measure.report.drawing.charts import ReportFigure, Series
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.html_page import PagePart, ReportPage, write_page
from ropewalk.measure.report.tables import size
from ropewalk.measure.report.titles import corpus_of, date_of, model_of
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.methods.spec import Json

DATA = "stream.json"
STREAM_ROWS = 8  # of the table
HEAD = ("tokens read", "loss", "accuracy", "ms per token", "cache")
CAPTION = "loss, accuracy, ms per token: in the tokens since the row above"


def table(result: StreamResult) -> PageTable:
    """All sections, several in each row."""
    rows = (
        (f"{row.stop:,}", f"{row.loss:.3f}", f"{row.accuracy:.3f}", f"{row.milliseconds:.3f}", size(row.cache_bytes))
        for row in _rows(result.stretches)
    )
    return PageTable(HEAD, tuple(rows))


def _rows(sections: Sequence[StreamSection]) -> list[StreamSection]:
    """The sections averaged into at most STREAM_ROWS rows."""
    begins = [1, *(section.stop for section in sections)]  # the first token is read but not predicted
    sizes = [stop - begin for begin, stop in pairwise(begins)]
    cuts = [round(len(sections) * row / STREAM_ROWS) for row in range(STREAM_ROWS + 1)]
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


def write_streamed(
    result: StreamResult, folder: str | Path, *, trained_len: int, settings: Json, pictures: str = ""
) -> Path:
    """The page `stream.html`, `stream.json` with the settings, and the figures as CSV and as `pictures`."""
    numbers = json.dumps(settings | {"trained_len": trained_len} | result.to_json(), indent=1) + "\n"
    page = page_of(result, trained_len, settings)
    return write_page(page, Path(folder) / "stream.html", {DATA: numbers}, pictures)


def page_of(result: StreamResult, trained_len: int, settings: Json) -> ReportPage:
    """What the page says."""
    model, line, corpus = model_of(settings), str(settings.get("line", "")), corpus_of(settings)
    under = f" under {name_of(line)}" if line else ""
    lead, *others = figures(result, trained_len, name_of(line))
    return ReportPage(
        kind="ropewalk stream",
        title=f"{model}{under}, reading {result.tokens:,} tokens of {corpus or 'a corpus'}",
        date=date_of(settings),
        facts=[
            ("model", model),
            ("extension", name_of(line) or "none"),
            ("corpus", corpus or "-"),
            ("texts", f"{result.documents:,} documents, joined"),
            ("lengths", f"trained on {trained_len:,} tokens, read {result.tokens:,}"),
        ],
        advice=summary(result),
        headline=[lead],
        table=table(result),
        table_name="From the beginning to the end",
        table_about=f"{CAPTION[0].upper()}{CAPTION[1:]}; a click on a heading sorts.",
        parts=[PagePart("time and memory", "What reading costs, by position.", tuple(others))],
        command=str(settings.get("command", "")),
        made=settings,
        data=DATA,
    )


def figures(result: StreamResult, trained_len: int, name: str) -> list[ReportFigure]:
    """Loss, time and cache by position: one number of every section in each, and all of them in each file."""
    shown = (  # file, number, question, its axis, digits, and what is one on it
        ("stream", "loss", "Does the loss stay level?", "loss, nats per token", 3, 1.0),
        (
            "stream_time",
            "milliseconds",
            "Does a token take longer, the later it comes?",
            "milliseconds per token",
            3,
            1.0,
        ),
        ("stream_cache", "cache_bytes", "Does the cache grow?", "cache, MiB", 1, 2.0**20),
    )
    sections = result.stretches
    at = tuple(float(section.stop) for section in sections)
    caption = "By position in one long text. The dotted line is the trained length."
    return [
        ReportFigure(
            file,
            question,
            caption,
            line_chart(
                [Series(name or "the model", 0, at, tuple(getattr(section, number) / unit for section in sections))],
                across="position in the text, tokens",
                up=up,
                marks=[trained_mark(trained_len)],
                to=result.tokens,
                digits=digits,
                from_zero=number != "loss",
            ),
            StreamSection._fields,
            tuple(map(tuple, sections)),
        )
        for file, number, question, up, digits, unit in shown
    ]
