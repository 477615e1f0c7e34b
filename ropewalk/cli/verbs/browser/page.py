"""`ropewalk page`: the page on which methods are seen, as one file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ropewalk.errors import InvalidValue
from ropewalk.files import holds

FILE = "ropewalk.html"
Out = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="where it is written, such as page.html")]
Open = Annotated[bool, typer.Option("--open", help="show it in a browser")]


def page(out: Out = FILE, show: Open = False) -> None:
    """Write a page that draws what two extensions do to a model: rotations, reach, logits. It needs no network."""
    place = Path(out)
    if not out or holds(place.is_dir):
        raise InvalidValue("--out", "a file, such as page.html", out)
    from ropewalk.folders import write_whole
    from ropewalk.page import html

    write_whole(place, html())
    typer.echo(str(place))
    if show:
        webbrowser.open_new_tab(place.resolve().as_uri())
