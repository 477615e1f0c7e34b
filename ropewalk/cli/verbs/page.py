"""`ropewalk page`: the page on which methods are seen, as one file."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ropewalk import folders
from ropewalk.cli import completion
from ropewalk.cli.models import To, known, quietly, target
from ropewalk.errors import InvalidValue
from ropewalk.files import holds
from ropewalk.models import path_of

FILE = "ropewalk.html"
Model = Annotated[
    str,
    typer.Argument(
        callback=path_of,
        autocompletion=completion.models,
        help="a folder, a GGUF file, a config.json or a name on the hub; by default a usual Llama",
        show_default=False,
    ),
]
Lines = Annotated[
    list[str] | None,
    typer.Argument(
        callback=known, autocompletion=completion.extensions, help="one or two extensions, such as yarn rerope+log_n"
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="where it is written, such as page.html")]
Open = Annotated[bool, typer.Option("--open", help="show it in a browser")]


def page(model: Model = "", extensions: Lines = None, to: To = "", out: Out = FILE, show: Open = False) -> None:
    """Write a page that draws what two extensions do to a model: rotations, reach, logits. It needs no network."""
    place, lines, target_len = Path(out), tuple(extensions or ()), target(to)
    if not out or holds(place.is_dir):
        raise InvalidValue("--out", "a file, such as page.html", out)
    if len(lines) > 2:
        raise InvalidValue("extensions", "at most two, which the page draws side by side", len(lines))
    config = _config(model) if model else ""
    if lines:
        from ropewalk.extension.parsing import read_line

        for line in lines:
            read_line(line)
    from ropewalk.page import html

    folders.write_whole(place, html(config=config, lines=lines, target_len=target_len))
    typer.echo(str(place))
    if show:
        webbrowser.open_new_tab(place.resolve().as_uri())


def _config(model: str) -> str:
    """The text of a model's config, with all that transformers knows of it."""
    folders.require_plausible(model, config_is_enough=True)
    from ropewalk.hf.checkpoint.fetch import fetch_config

    return json.dumps(quietly(fetch_config, model).to_dict(), default=str)
