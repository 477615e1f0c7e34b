"""What verbs that write a report have in common: their options, and how they end."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ropewalk.cli.printed_json import command, print_json

if TYPE_CHECKING:
    from ropewalk.measure.result import MeasuredResult


def drawable(pictures: str) -> str:
    """The formats, if they are known and matplotlib is there: refused before anything is measured."""
    if pictures:
        from ropewalk.measure.report.drawing.paper import formats_of

        formats_of(pictures)
    return pictures


Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the report is written")]
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


def print_result(result: MeasuredResult, out: str, *, as_json: bool, **more: Any) -> None:
    """Print a result whose report is in a folder: as tables and sentences, or as JSON with `more` in it."""
    if as_json:
        print_json({"folder": out, **more, **result.to_dict(), "command": command()})
    else:
        console = Console(markup=False, highlight=False)
        for part in result.for_terminal():
            console.print(part)


def open_page(page: Path, *, wanted: bool) -> None:
    """Open a page if that is wanted; where there is no browser, say so and go on."""
    if wanted and not webbrowser.open_new_tab(page.resolve().as_uri()):
        print(f"No browser could be opened here; the page is {page}", file=sys.stderr)
