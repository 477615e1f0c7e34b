"""`ropewalk compare`: which extension suits a model, measured; a table, a report, and a recommendation."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ropewalk.cli import completion
from ropewalk.cli.browser import Open, shown
from ropewalk.cli.models import Device, require_plausible
from ropewalk.cli.printed_json import AsJson, command, print_json
from ropewalk.errors import InvalidValue
from ropewalk.folders import require_writable
from ropewalk.models import NAME, path_of
from ropewalk.notation import BARE

if TYPE_CHECKING:
    from ropewalk.evaluation.compare.compare import Comparison

Model = Annotated[
    str,
    typer.Argument(
        callback=path_of,
        autocompletion=completion.models,
        help="a folder or a name on the hub; by default the small model in Ropewalk",
    ),
]
Lines = Annotated[
    list[str] | None,
    typer.Argument(autocompletion=completion.extensions, help="extensions, such as yarn rerope+log_n; by default nine"),
]
Lengths = Annotated[
    str, typer.Option(metavar="LENGTHS", help="such as 512,2k,8k; by default 1, 2, 4 and 8 times the trained length")
]
Corpus = Annotated[
    str,
    typer.Option(
        autocompletion=completion.one_of(completion.CORPORA),
        help="held-out text: stdlib, python, folder:PATH, FILE.jsonl, FILE.parquet, hub:NAME:FIELD or all:SOURCE",
    ),
]
Tasks = Annotated[str, typer.Option(metavar="TASKS", help="such as passkey,ruler:kind=vt")]
Samples = Annotated[int, typer.Option(min=2, help="texts for each length")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the report is written")]
Workers = Annotated[int, typer.Option(min=0, help="processes that measure; 0: one for each core if the model is small")]
Ray = Annotated[str, typer.Option(metavar="ADDRESS", help="measure on a Ray cluster: HOST:PORT, auto or local")]


def compare(
    model: Model = NAME,
    extensions: Lines = None,
    lengths: Lengths = "",
    corpus: Corpus = "stdlib",
    samples: Samples = 4,
    tasks: Tasks = "",
    out: Out = "ropewalk-report",
    device: Device = "",
    workers: Workers = 0,
    ray: Ray = "",
    as_json: AsJson = False,
    open_: Open = False,
) -> None:
    """Measure extensions of a model side by side and say which to use. If interrupted, run it again to continue."""
    for line in extensions or [BARE]:
        require_plausible(model, "" if line == BARE else line)
    require_writable(Path(out))
    for option, value in {"device": device, "workers": workers}.items():
        if ray and value:
            sentence = f"give --ray or --{option}, not both: the cluster has a worker for each GPU or CPU"
            raise InvalidValue.because(option, sentence)
    from ropewalk.measure.comparing import compare as measured

    result = measured(
        model,
        extensions or (),
        lengths=lengths.split(",") if lengths else (),
        corpus=corpus,
        samples=samples,
        tasks=tasks,
        folder=out,
        device=device,
        workers=workers,
        ray=ray,
        progress="lines",
    )
    page = result.write(out, command=command())
    if as_json:
        print_json({"folder": out, **result.to_dict(), "command": command()})
    else:
        _show(result.comparison)
        print(f"Report: {page} ({result.comparison.seconds:.0f} s of measuring, summed over processes)")
    shown(page, wanted=open_)


def _show(comparison: Comparison) -> None:
    from ropewalk.report.tables import advice, notes, terminal, terminal_extras, verdicts

    console = Console()
    for table in (terminal(comparison), *terminal_extras(comparison), verdicts(comparison)):
        console.print(table)
        print()
    for note in notes(comparison):
        print(textwrap.fill(note, 80))
    print("\n" + textwrap.fill(advice(comparison), 80))
