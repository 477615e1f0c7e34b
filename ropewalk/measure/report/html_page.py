"""The HTML page of every report, self-contained, from the files of templates/."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from ropewalk.files import read_bytes
from ropewalk.folders import replace_files, write_text
from ropewalk.measure.report.drawing.charts import LIGHT, Chart, ReportFigure, style_of
from ropewalk.measure.report.drawing.names import name_of, visible
from ropewalk.measure.report.drawing.paper import formats_of, write_pictures
from ropewalk.measure.report.written_tables import PageTable

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
NONE: Mapping[str, bytes] = MappingProxyType({})
MOST_ROWS = 500  # of a table of numbers
TYPES = {
    "csv": "text/csv",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "png": "image/png",
    "gz": "application/gzip",
}
NO_NUMBER = dict.fromkeys(("", "-", "mem", "died", "nan"), "")
ENDS = {**NO_NUMBER, "inf": "1e999", "-inf": "-1e999"}  # JavaScript reads these as infinite
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


class PagePart(NamedTuple):
    """Figures under a heading and a sentence, and numbers folded away below them; what is empty is left out."""

    name: str
    about: str
    figures: tuple[ReportFigure, ...]
    numbers: PageTable | None = None


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """What a report says, from the top."""

    kind: str  # the command
    title: str
    date: str
    facts: Sequence[tuple[str, str]]  # model, extension, corpus, texts
    advice: Sequence[str]
    headline: Sequence[ReportFigure]
    parts: Sequence[PagePart]
    command: str
    made: Mapping[str, Any]
    data: str  # the file of all numbers
    table: PageTable | None = None
    table_name: str = "Side by side"
    table_about: str = ""
    finding: str = ""  # one line that says what was found, for who gets a link; by default the advice
    notes: Sequence[str] = ()
    keys: Mapping[str, int] = field(default_factory=dict)  # the style of each extension, by its name

    @property
    def figures(self) -> list[ReportFigure]:
        """All of them, in the order of the page."""
        return [*self.headline, *(figure for part in self.parts for figure in part.figures)]


def write_page(page: ReportPage, place: Path, files: Mapping[str, str], pictures: str = "") -> Path:
    """The page, the numbers of each figure as CSV, its pictures, and other files: all of one run, or none of them."""
    formats = formats_of(pictures)
    with replace_files(place.parent) as folder:
        for figure in page.figures:
            write_text(folder / f"{figure.name}.csv", figure.csv())
            if formats:
                write_pictures(figure, folder, formats)
        for name, content in files.items():
            write_text(folder / name, content)
        carried = {path.name: read_bytes(path, "report", "files that were just written") for path in folder.iterdir()}
        write_text(folder / place.name, render_page(page, formats, carried))
    return place


def render_page(page: ReportPage, formats: Sequence[str] = (), files: Mapping[str, bytes] = NONE) -> str:
    """The whole page as text. What it links to is in it: of `files` its data, and its pictures in these formats."""
    drawn, uplot = PackageLoader("ropewalk.measure.report"), PackageLoader("ropewalk.page", "web/library")
    environment = Environment(loader=drawn, autoescape=True, undefined=StrictUndefined)

    def source(loader: PackageLoader, name: str) -> str:
        return loader.get_source(environment, name)[0]

    licence = f"/*\n{source(uplot, 'LICENSE')}*/"
    script = "\n".join(
        [licence, source(uplot, "uPlot.iife.min.js"), source(drawn, "charts.js"), source(drawn, "page.js")]
    )
    charts = {figure.name: figure.chart.to_json() for figure in page.figures if isinstance(figure.chart, Chart)}
    return visible_lines(
        environment.get_template("page.html").render(
            page=page,
            keys=page.keys,
            made=json.dumps(page.made, indent=1),
            colours=LIGHT,
            style=Markup(source(uplot, "uPlot.min.css") + source(drawn, "page.css")),
            script=Markup(script),
            script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
            charts=htmlsafe_json_dumps(charts, separators=(",", ":")),
            data=link_to(gzip.compress(files[page.data], mtime=0), "gz") if page.data in files else "",
            links_of=lambda figure: _links_of(figure, formats, files),
            table_of=_table_of,
            key_of=sort_key,
            style_of=style_of,
        )
    )


def link_to(content: bytes, kind: str) -> str:
    """A link that is the file, so that a page which is sent alone still has it."""
    return f"data:{TYPES[kind]};base64,{base64.b64encode(content).decode()}"


def _links_of(figure: ReportFigure, formats: Sequence[str], files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """The name of each file of a figure, and a link that is the file."""
    pictures = [(name, link_to(files[name], kind)) for kind in formats for name in [f"{figure.name}.{kind}"]]
    return [*pictures, (f"{figure.name}.csv", link_to(figure.csv().encode("utf-8", "backslashreplace"), "csv"))]


def sort_key(cell: str) -> str:
    """What a cell is sorted by: its number, of several shares the last; else its text; nothing where it is empty."""
    words = cell.strip()
    if words in ENDS:
        return ENDS[words]
    numbers = [number.replace(",", "") for number in NUMBER.findall(words)]
    if not numbers or not re.match(r"[+-]?\d", words):
        return words.lower()
    number = numbers[-1] if re.fullmatch(r"(?:\S*\d%?|mem|-)(?: (?:\S*\d%?|mem|-))+", words) else numbers[0]
    unit = UNITS.get(words.rpartition(" ")[2], 1)
    value = float(number) * unit
    return f"{value:.10g}" if math.isfinite(value) else ""


def visible_lines(text: str) -> str:
    """Text whose control characters are written out, line by line."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _table_of(figure: ReportFigure) -> PageTable | None:
    """The numbers of a figure as a table, if there are not too many to be read."""
    head = tuple(name.replace("_", " ") for name in figure.head)
    if figure.shown or len(figure.numbers) > MOST_ROWS:
        return PageTable(head, figure.shown) if figure.shown else None
    return PageTable(head, tuple(tuple(map(_cell, row)) for row in figure.numbers))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else ""
    return "" if value is None else name_of(str(value))
