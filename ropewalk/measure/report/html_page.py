"""The HTML page of every report, self-contained, from the files of templates/."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from markupsafe import Markup

from ropewalk.measure.report.drawing.elements import element, ruler
from ropewalk.measure.report.drawing.figure import NARROW, WIDE, ReportFigure, template_file, templates
from ropewalk.measure.report.drawing.names import visible
from ropewalk.measure.report.drawing.styles import style_of

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
NO_NUMBER = dict.fromkeys(("", "-", "mem", "died", "nan"), "")
ENDS = {**NO_NUMBER, "inf": "1e999", "-inf": "-1e999"}  # JavaScript reads these as infinite
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


class PageTable(NamedTuple):
    """Words in rows; `ends_in_words`: the last column is text and may take several lines."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ends_in_words: bool = False


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
    notes: Sequence[str] = ()
    keys: Mapping[str, int] = field(default_factory=dict)  # the style of each extension, by its name

    @property
    def figures(self) -> list[ReportFigure]:
        """All of them, in the order of the page."""
        return [*self.headline, *(figure for part in self.parts for figure in part.figures)]


def render_page(page: ReportPage) -> str:
    """The whole page as text."""
    script = template_file("page.js")
    return visible_lines(
        templates()
        .get_template("page.html")
        .render(
            page=page,
            keys=page.keys,
            made=json.dumps(page.made, indent=1),
            style=Markup(template_file("figure.css") + template_file("page.css")),
            script=Markup(script),
            script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
            drawings=drawings,
            table_of=_table_of,
            key_of=sort_key,
            swatch=_swatch,
        )
    )


def drawings(figure: ReportFigure) -> list[Markup]:
    """A figure for wide and for narrow places, each with its logarithmic form where it has one; the page shows one."""
    canvases = [
        canvas._replace(log=log) for canvas in (WIDE, NARROW) for log in ((False, True) if figure.has_log else (False,))
    ]
    return [figure.draw(canvas, figure.title) for canvas in canvases]


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


def _swatch(key: int) -> Markup:
    """The line of an extension, as its figures have it."""
    line = ruler(0, 6, 22, 6, "swatch")
    return element("svg", line, width=22, height=12, viewBox="0 0 22 12", class_=style_of(key), aria_hidden="true")


def _table_of(drawn: ReportFigure) -> PageTable:
    """The rows of a figure that the page shows as a table."""
    return PageTable(tuple(name.replace("_", " ") for name in drawn.head), drawn.shown)
