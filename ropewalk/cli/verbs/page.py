"""`ropewalk page`: the page on which methods are seen, as one file."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk import folders
from ropewalk.cli.models import To, extension_argument, model_argument, target
from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.files import holds
from ropewalk.hf.load_options import LoadOptions, require_plausible
from ropewalk.hf.loading import silence_transformers, weight_files
from ropewalk.models import named

if TYPE_CHECKING:
    from ropewalk.methods.facts import Facts  # importing it takes a second
    from ropewalk.methods.spec import Json

FILE = "ropewalk.html"
LARGEST = 2**32  # bytes of weights that are read unasked
Model = Annotated[
    str, model_argument("a folder, a GGUF file, a config.json or a name on the hub; by default a usual Llama")
]
Lines = Annotated[
    list[str] | None,
    extension_argument(
        "extensions that the page has beside the presets, such as yarn:factor=3; it shows the first two"
    ),
]
Read = Annotated[
    bool | None,
    typer.Option(
        "--read/--no-read",
        help="read held-out texts with the model, for loss and attention; by default where its weights are below 4 GiB "
        "and it takes half an hour at most",
        show_default=False,
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="where it is written, such as page.html")]
Open = Annotated[bool, typer.Option("--open", help="show it in a browser")]


def page(
    model: Model = "",
    extensions: Lines = None,
    to: To = "",
    read: Read = None,
    out: Out = FILE,
    show: Open = False,
    *,
    options: LoadOptions,
) -> None:
    """Write a page that shows what two extensions do to a model: loss by position, attention, rotations, reach, logits.

    It needs no network. If the model has weights, it first reads held-out texts, and says how long that takes.
    """
    place, lines, target_len = Path(out), tuple(extensions or ()), target(to)
    if not out or holds(place.is_dir):
        raise InvalidValue("--out", "a file, such as page.html", out)
    folders.write_whole(place, _text(model, lines, target_len, read, options))
    typer.echo(str(place))
    if show:
        webbrowser.open_new_tab(place.resolve().as_uri())


def _text(model: str, lines: tuple[str, ...], target_len: int | None, read: bool | None, options: LoadOptions) -> str:
    """The page, for a model of which its config is enough."""
    if model:
        require_plausible(model, config_is_enough=True)
    elif read:
        raise InvalidValue("--read", "with a model that has weights, such as default", "no model")
    from ropewalk.page import html
    from ropewalk.page.assemble import USUAL

    if not model:
        _require_fitting(lines, USUAL, target_len)
        return html(lines=lines, target_len=target_len)
    from ropewalk.hf.use.inspect import sizes

    silence_transformers()
    looked = sizes(model, options=options)
    _require_fitting(lines, looked.facts, target_len)
    example = _example(model, lines, target_len, options, wanted=read)
    length = target_len or (example["length"] if example else None)
    return html(
        looked.facts,
        lines=lines,
        target_len=length,
        own_schedule=looked.own_schedule,
        example=example,
        model=named(model),
    )


def _require_fitting(lines: tuple[str, ...], facts: Facts, target_len: int | None) -> None:
    """Refuse a line before a text is read; the page itself shows why, where somebody types one."""
    from ropewalk.extension.parsing import parse_for
    from ropewalk.page.assemble import AT_FIRST

    for line in lines:
        parse_for(line, facts, target_len or AT_FIRST * facts.trained_len).check_against(facts)


def _example(
    model: str, lines: tuple[str, ...], target_len: int | None, options: LoadOptions, *, wanted: bool | None
) -> Json | None:
    """What the model shows on held-out texts; nothing where it has no weights, or they are large and nobody asked."""
    if wanted is False or (wanted is None and not _is_read(model, options)):
        return None
    from ropewalk.measure.arguments import RunOptions
    from ropewalk.page.assemble import first_lines
    from ropewalk.page.example import read_example

    try:
        every = list(dict.fromkeys([*first_lines(lines), *lines]))
        return read_example(model, every, target_len, RunOptions.of(options), asked=bool(wanted))
    except RopewalkError as reason:  # a folder without a tokenizer, a corpus without a text of that length
        if wanted:
            raise
        typer.echo(f"ropewalk: no text is read with the model: {reason}", err=True)
        return None


def _is_read(model: str, options: LoadOptions) -> bool:
    """Whether a model has weights here or on the hub, and few enough."""
    if model.endswith(".json") or (Path(model).is_dir() and not weight_files(model)):
        return False
    from ropewalk.hf.checkpoint.fetch import fetch_config
    from ropewalk.hf.use.stand_in import weight_bytes

    is_small = weight_bytes(fetch_config(model, options)) <= LARGEST
    if not is_small:
        typer.echo(
            "ropewalk: the page draws by formulas alone, since the weights are large; --read reads texts", err=True
        )
    return is_small
