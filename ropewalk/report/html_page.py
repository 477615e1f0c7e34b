"""The HTML page of every report, self-contained, from the template templates/page.html."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from ropewalk.report.drawing import ReportFigure, embedded


class PageTable(NamedTuple):
    """Words in rows; `ends_in_words`: the last column is text and may take several lines."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ends_in_words: bool = False


class PagePart(NamedTuple):
    """Figures under a heading, and numbers folded away below them; what is empty is left out."""

    name: str
    about: str
    figures: tuple[ReportFigure, ...]
    numbers: PageTable | None = None


def render_page(
    *,
    title: str,
    advice: Sequence[str],
    table: PageTable,
    notes: Sequence[str],
    parts: Sequence[PagePart],
    command: str,
    made: Mapping[str, Any],
    folder: Path,
) -> str:
    """The whole page as text; its figures must already be files in the folder."""
    return _template().render(
        title=title,
        advice=advice,
        table=table,
        notes=notes,
        parts=parts,
        command=command,
        made=json.dumps(made, indent=1),
        image_of=partial(embedded, folder=folder),
        table_of=_table_of,
    )


@cache
def _template() -> Template:
    loader = PackageLoader("ropewalk.report")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("page.html")


def _table_of(drawn: ReportFigure) -> PageTable:
    """The rows of a figure that the page shows as a table."""
    return PageTable(tuple(name.replace("_", " ") for name in drawn.head), drawn.shown)
