"""`ropewalk diagnose`: why an extension holds or breaks; figures from inside the model."""

from __future__ import annotations

import shlex
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ropewalk.cli.models import Device, placed, require_plausible, tokenizer_of, weights_of
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.models import NAME
from ropewalk.notation import length as read

Line = Annotated[str, typer.Argument(help="an extension, such as rerope+log_n; the bare model alone if none")]
Length = Annotated[str, typer.Option(metavar="LENGTH", help="such as 2k; 4 times the trained one if none")]
Texts = Annotated[int, typer.Option(min=1, help="whose losses are taken; all else is of the first")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the page goes")]


def diagnose(
    model: Model = NAME,
    extension: Line = "",
    length: Length = "",
    corpus: Corpus = "stdlib",
    texts: Texts = 2,
    out: Out = "ropewalk-diagnosis",
    device: Device = "",
) -> None:
    """Look into a model, bare and extended: turns, logits, entropy, what attention holds, hidden states, sinks."""
    asked = read(length, "--length") if length else None
    require_plausible(model, extension)
    _diagnose(model, extension, asked, corpus, texts, Path(out), device)


def _diagnose(model: str, line: str, asked: int | None, corpus: str, texts: int, out: Path, device: str) -> None:
    from ropewalk.evaluation.diagnostics.diagnose import diagnose
    from ropewalk.evaluation.material.subject import Subject
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.report.diagnosis import findings, numbers, title, write_diagnosis

    tokenizer = tokenizer_of(model)
    loaded = placed(weights_of(model), device)
    own = taken_off(loaded)
    longest = asked or 4 * trained_len(loaded.config.get_text_config())
    subject = Subject(model=loaded, own=own, tokenizer=tokenizer, corpus=corpus, longest=longest)
    with Console(stderr=True).status("looking") as status:
        found = diagnose(subject, line, texts=texts, progress=status.update)
    page = write_diagnosis(found, out, command=shlex.join(["ropewalk", *sys.argv[1:]]))
    Console().print(_table(title(found), numbers(found)))
    for words in findings(found):
        print(textwrap.fill(words, 80, subsequent_indent="  "))
    print(f"\nThe page: {page}")


def _table(name: str, found: Any) -> Table:
    drawn = Table(title=name, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column, words in enumerate(found.head):
        drawn.add_column(words, justify="right" if column else "left", overflow="fold")
    for row in found.rows:
        drawn.add_row(*row)
    return drawn
