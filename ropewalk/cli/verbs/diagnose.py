"""`ropewalk diagnose`: why an extension works or fails; figures from inside the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.models import extension_argument, require_plausible
from ropewalk.cli.output import AsJson, Open, Out, Pictures, command, open_page, print_result
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.folders import require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import NAME

Line = Annotated[str, extension_argument("an extension, such as rerope+log_n; by default the base model alone")]
Length = Annotated[str, typer.Option(metavar="LENGTH", help="such as 2k; by default 4 times the trained length")]
Texts = Annotated[int, typer.Option(min=1, help="texts for the loss; everything else is measured on the first")]


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
    from ropewalk.measure.arguments import RunOptions
    from ropewalk.measure.diagnose import diagnose as measure

    run = RunOptions.of(options, progress="lines")
    result = measure(model, extension, length=length or None, corpus=corpus, texts=texts, options=run)
    page = result.write(out, command=command(), pictures=pictures)
    print_result(result, out, as_json=as_json)
    if not as_json:
        print(f"Report: {page}")
    open_page(page, wanted=open_)
