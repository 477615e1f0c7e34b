"""`ropewalk page`: the page on which methods are seen, as one file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ropewalk import folders
from ropewalk.cli import completion
from ropewalk.cli.models import To, require_known, target
from ropewalk.errors import InvalidValue
from ropewalk.files import holds
from ropewalk.hf.load_options import require_plausible
from ropewalk.hf.loading import silence_transformers
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
        callback=require_known,
        autocompletion=completion.extensions,
        help="extensions that the page has beside the presets, such as yarn:factor=3; it shows the first two",
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="where it is written, such as page.html")]
Open = Annotated[bool, typer.Option("--open", help="show it in a browser")]


def page(model: Model = "", extensions: Lines = None, to: To = "", out: Out = FILE, show: Open = False) -> None:
    """Write a page that draws what two extensions do to a model: rotations, reach, logits. It needs no network."""
    place, lines, target_len = Path(out), tuple(extensions or ()), target(to)
    if not out or holds(place.is_dir):
        raise InvalidValue("--out", "a file, such as page.html", out)
    if lines:
        from ropewalk.extension.parsing import read_line

        for line in lines:
            read_line(line)
    folders.write_whole(place, _text(model, lines, target_len))
    typer.echo(str(place))
    if show:
        webbrowser.open_new_tab(place.resolve().as_uri())


def _text(model: str, lines: tuple[str, ...], target_len: int | None) -> str:
    """The page, for a model of which its config is enough."""
    if model:
        require_plausible(model, config_is_enough=True)
    from ropewalk.page import html

    if not model:
        return html(lines=lines, target_len=target_len)
    from ropewalk.hf.use.inspect import sizes

    silence_transformers()
    looked = sizes(model)
    return html(looked.facts, lines=lines, target_len=target_len, own_schedule=looked.own_schedule)
