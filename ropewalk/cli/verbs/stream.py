"""`ropewalk stream`: read a very long text through the cache; loss, time and memory by position."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ropewalk.cli.models import Extension, Model, load_and_place, parse_for_model, require_plausible
from ropewalk.cli.output import AsJson, Open, Pictures, command, open_page, print_json
from ropewalk.cli.verbs.compare import Corpus
from ropewalk.extension.notation import length
from ropewalk.folders import require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer
from ropewalk.measure.progress import showing_progress
from ropewalk.models import named

if TYPE_CHECKING:
    from ropewalk.extension import extension as extensions
    from ropewalk.measure.metrics.streaming import StreamResult

FOLDER = "ropewalk-stream"  # where the page goes with --open or --pictures alone
LARGEST_CHUNK, LEAST_CHUNK, POINTS = 8192, 512, 16  # defaults: tokens of a chunk, and chunks of a text

Tokens = Annotated[str, typer.Option(metavar="LENGTH", help="length of the text, such as 100k or 1m")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the page and its numbers are written")]
Piece = Annotated[int, typer.Option(min=0, help="tokens read at once; 0: a sixteenth of the text, from 512 to 8,192")]


def stream(
    model: Model,
    extension: Extension,
    tokens: Tokens = "1m",
    corpus: Corpus = "stdlib",
    out: Out = "",
    pictures: Pictures = "",
    piece: Piece = 0,
    as_json: AsJson = False,
    open_: Open = False,
    *,
    options: LoadOptions,
) -> None:
    """Read a very long text under an extension, in the model's precision."""
    count = length(tokens, "--tokens")
    line = require_plausible(model, extension)
    out = out or (FOLDER if open_ or pictures else "")
    folder = Path(out) if out else None
    if folder:
        require_writable(folder)
    parsed = parse_for_model(model, line or extension, tokens, options, "--tokens")
    chunk = piece or min(LARGEST_CHUNK, max(LEAST_CHUNK, count // POINTS))
    result, known, about = _read(model, options, parsed, count, corpus, chunk)
    settings = {"command": command(), "line": extension, **about}
    from ropewalk.measure.report.streaming import CAPTION, summary, table, write_streamed

    page = write_streamed(result, folder, trained_len=known, settings=settings, pictures=pictures) if folder else None
    if as_json:
        print_json({"folder": folder and str(folder), **settings, "trained_len": known, **result.to_json()})
    else:
        Console(markup=False).print(table(result).for_terminal(words=(), space=2))
        print("\n" + "\n".join([CAPTION, *summary(result)]))
        if page:
            print(f"Written to {folder}; the page is {page.name}")
    if page:
        open_page(page, wanted=open_)


def _read(
    model: str, options: LoadOptions, extension: extensions.Extension, count: int, corpus: str, chunk: int
) -> tuple[StreamResult, int, dict[str, Any]]:
    """What was read, the model's trained length, and how and by what it was read."""
    import torch

    from ropewalk.hf.attach.trained_extension import take_off
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.measure.comparison.store import provenance
    from ropewalk.measure.metrics.streaming import long_text, read_stream

    tokenizer = load_tokenizer(model, options)
    host = load_and_place(model, options)
    text = long_text(tokenizer, corpus, count)
    known = trained_len(host)
    trained_under = take_off(host)
    with (
        showing_progress("reading", shown="lines") as progress,
        trained_under.under(host, extension, target_len=count) as handle,
    ):
        result = read_stream(host, tokenizer, text, piece=chunk, progress=progress)
    about = {
        "extension": handle.extension.to_json(),
        "corpus": corpus,
        "dtype": str(host.dtype),
        "threads": torch.get_num_threads(),
        **provenance(),
        "model": named(model),
    }
    return result, known, about
