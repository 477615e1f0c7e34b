"""`ropewalk diagnose`: why an extension works or fails; figures from inside the model."""

from __future__ import annotations

import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ropewalk.cli.browser import Open, shown
from ropewalk.cli.models import Device, placed, require_plausible, tokenizer_of, weights_of
from ropewalk.cli.progress import showing_progress
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.models import NAME
from ropewalk.notation import length as read

if TYPE_CHECKING:
    from ropewalk.report.html_page import PageTable

Line = Annotated[str, typer.Argument(help="an extension, such as rerope+log_n; by default the base model alone")]
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
    device: Device = "",
    open_: Open = False,
) -> None:
    """Look inside a model with and without an extension: angles, logits, entropy, attention, hidden states, sinks."""
    longest = read(length, "--length") if length else None
    require_plausible(model, extension)
    shown(_diagnose(model, extension, longest, corpus, texts, Path(out), device), wanted=open_)


def _diagnose(model: str, line: str, longest: int | None, corpus: str, texts: int, out: Path, device: str) -> Path:
    from ropewalk.evaluation.diagnostics.diagnose import diagnose
    from ropewalk.evaluation.material.subject import Subject
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.report.diagnosis import findings, numbers, title, write_diagnosis

    tokenizer = tokenizer_of(model)
    loaded = placed(weights_of(model), device)
    trained_under = taken_off(loaded)
    longest = longest or 4 * trained_len(loaded.config.get_text_config())
    subject = Subject(model=loaded, own=trained_under, tokenizer=tokenizer, corpus=corpus, longest=longest)
    with showing_progress("diagnosing") as progress:
        diagnosis = diagnose(subject, line, texts=texts, progress=progress)
    page = write_diagnosis(diagnosis, out, command=shlex.join(["ropewalk", *sys.argv[1:]]))
    Console().print(_table(title(diagnosis), numbers(diagnosis)))
    for words in findings(diagnosis):
        print(textwrap.fill(words, 80, subsequent_indent="  "))
    print(f"\nReport: {page}")
    return page


def _table(name: str, numbers: PageTable) -> Table:
    drawn = Table(title=name, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column, words in enumerate(numbers.head):
        drawn.add_column(words, justify="right" if column else "left", overflow="fold", no_wrap=not column)
    for row in numbers.rows:
        drawn.add_row(*row)
    return drawn
