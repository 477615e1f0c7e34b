"""`--open`, `--pictures`: the page of a report in the browser, and its figures on paper."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def drawable(pictures: str) -> str:
    """The formats, if they are known and matplotlib is there: refused before anything is measured."""
    if pictures:
        from ropewalk.measure.report.drawing.paper import formats_of

        formats_of(pictures)
    return pictures


Open = Annotated[bool, typer.Option("--open", help="show the page in the browser")]

Pictures = Annotated[
    str,
    typer.Option(
        "--pictures",
        metavar="FORMATS",
        callback=drawable,
        help="draw every figure for paper too, by matplotlib: svg, pdf and png, separated by commas",
    ),
]


def shown(page: Path, *, wanted: bool) -> None:
    """Open a page if that is wanted; where there is no browser, say so and go on."""
    if wanted and not webbrowser.open_new_tab(page.resolve().as_uri()):
        print(f"No browser could be opened here; the page is {page}", file=sys.stderr)
