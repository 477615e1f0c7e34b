"""`ropewalk diagnose`: why an extension works or fails; figures from inside the model."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ropewalk.cli import completion
from ropewalk.cli.browser import Open, Pictures, shown
from ropewalk.cli.models import known, require_plausible
from ropewalk.cli.printed_json import AsJson, command, print_json
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.folders import require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import NAME

if TYPE_CHECKING:
    from ropewalk.measure.report.html_page import PageTable

Line = Annotated[
    str,
    typer.Argument(
        callback=known,
        autocompletion=completion.extensions,
        help="an extension, such as rerope+log_n; by default the base model alone",
    ),
]
Length = Annotated[str, typer.Option(metavar="LENGTH", help="such as 2k; by default 4 times the trained length")]
Texts = Annotated[int, typer.Option(min=1, help="texts for the loss; everything else is measured on the first")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the page is written")]


def diagnose(
    model: Model = NAME,
    extension: Line = "",
    length: Length = "",
    corpus: Corpus = "stdlib",
    texts: Texts = 2,
    out: Out = "ropewalk-diagnosis",
    pictures: Pictures = "",
    as_json: AsJson = False,
    open_: Open = False,
    *,
    options: LoadOptions,
) -> None:
    """Look inside a model with and without an extension: angles, logits, entropy, attention, hidden states, sinks."""
    require_plausible(model, extension)
    require_writable(Path(out))
    from ropewalk.measure.api.diagnosing import diagnose as measured

    asked = length or None
    result = measured(model, extension, length=asked, corpus=corpus, texts=texts, options=options, progress="lines")
    page = result.write(out, command=command(), pictures=pictures)
    if as_json:
        print_json({"folder": out, **result.to_dict(), "command": command()})
    else:
        Console(markup=False).print(_table(result.title, result.table))
        for words in result.sentences:
            print(textwrap.fill(words, 80, subsequent_indent="  "))
        print(f"\nReport: {page}")
    shown(page, wanted=open_)


def _table(name: str, numbers: PageTable) -> Table:
    drawn = Table(title=name, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column, words in enumerate(numbers.head):
        drawn.add_column(words, justify="right" if column else "left", overflow="fold", no_wrap=not column)
    for row in numbers.rows:
        drawn.add_row(*row)
    return drawn
