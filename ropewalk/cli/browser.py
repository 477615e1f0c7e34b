"""`--open`: the page of a report in the browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

Open = Annotated[bool, typer.Option("--open", help="show the page in the browser")]


def shown(page: Path, *, wanted: bool) -> None:
    """Open a page if that is wanted; where there is no browser, say so and go on."""
    if wanted and not webbrowser.open_new_tab(page.resolve().as_uri()):
        print(f"No browser could be opened here; the page is {page}", file=sys.stderr)
