"""`ropewalk compare`: which extension suits a model, measured; a table, a report, and a recommendation."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ropewalk.cli import completion
from ropewalk.cli.browser import Open, shown
from ropewalk.cli.models import require_plausible
from ropewalk.cli.printed_json import AsJson, command, print_json
from ropewalk.errors import InvalidValue
from ropewalk.folders import require_writable
from ropewalk.models import NAME, path_of
from ropewalk.notation import BARE, duration
from ropewalk.placement import wanted_placement

if TYPE_CHECKING:
    from ropewalk.measure.comparing import ComparisonResult

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
        help="held-out text: stdlib, python, descriptions, folder:PATH, FILE.jsonl, FILE.parquet, hub:NAME:FIELD,"
        " A+B or all:SOURCE",
    ),
]
Tasks = Annotated[str, typer.Option(metavar="TASKS", help="such as passkey,ruler:kind=vt,./my_task.py")]
Samples = Annotated[
    int | None, typer.Option(min=2, help="texts for each length; by default 8, with --all 24 in rounds of 4, 8 and 24")
]
All = Annotated[
    bool,
    typer.Option("--all", help="every preset that applies, besides the extensions: a leaderboard at one length"),
]
To = Annotated[
    str,
    typer.Option("--to", metavar="LENGTH", help="with --all: target length; by default 8 times the trained length"),
]
Time = Annotated[
    str,
    typer.Option(
        "--time",
        metavar="TIME",
        help="with --all: time limit, such as 30m; the last complete round counts, and the first is always completed",
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the report is written")]
Workers = Annotated[int, typer.Option(min=0, help="processes that measure; 0: one for each core if the model is small")]
Ray = Annotated[str, typer.Option(metavar="ADDRESS", help="measure on a Ray cluster: HOST:PORT, auto or local")]


def compare(
    model: Model = NAME,
    extensions: Lines = None,
    lengths: Lengths = "",
    corpus: Corpus = "stdlib",
    samples: Samples = None,
    tasks: Tasks = "",
    all_: All = False,
    to: To = "",
    time: Time = "",
    out: Out = "ropewalk-report",
    workers: Workers = 0,
    ray: Ray = "",
    as_json: AsJson = False,
    open_: Open = False,
) -> None:
    """Measure extensions of a model side by side and say which to use. If interrupted, run it again to continue."""
    for line in extensions or [BARE]:
        require_plausible(model, "" if line == BARE else line)
    require_writable(Path(out))
    for option, value in {"device": wanted_placement().device, "workers": workers}.items():
        if ray and value:
            sentence = f"give --ray or --{option}, not both: the cluster has a worker for each GPU or CPU"
            raise InvalidValue.because(option, sentence)
    _require_together({"to": to, "time": time}, {"lengths": lengths}, all_)
    how: dict[str, Any] = {
        "corpus": corpus,
        "tasks": tasks,
        "folder": out,
        "workers": workers,
        "ray": ray,
        "progress": "lines",
    }
    result = (
        _board(model, extensions, to, time, samples, how)
        if all_
        else _side_by_side(model, extensions, lengths, samples, how)
    )
    page = result.write(out, command=command())
    if as_json:
        print_json({"folder": out, **result.to_dict(), "command": command()})
    else:
        _show(result)
        print(f"Report: {page} ({result.comparison.seconds:.0f} s of measuring, summed over processes)")
    shown(page, wanted=open_)


def _require_together(board: dict[str, str], others: dict[str, str], all_: bool) -> None:
    """Refuse options that the other kind of comparison has."""
    if all_:
        for option, value in others.items():
            if value:
                sentence = f"--{option} and --all do not go together: a leaderboard has one target length"
                raise InvalidValue.because(option, sentence, remedy="give --to LENGTH instead")
    for option, value in {} if all_ else board.items():
        if value:
            raise InvalidValue.because(option, f"--{option} is for a leaderboard", remedy="add --all, or leave it out")


def _side_by_side(
    model: str, extensions: list[str] | None, lengths: str, samples: int | None, how: dict[str, Any]
) -> ComparisonResult:
    from ropewalk.measure.comparing import SAMPLES
    from ropewalk.measure.comparing import compare as measured

    return measured(
        model, extensions or (), lengths=lengths.split(",") if lengths else (), samples=samples or SAMPLES, **how
    )


def _board(
    model: str, extensions: list[str] | None, to: str, time: str, samples: int | None, how: dict[str, Any]
) -> ComparisonResult:
    from ropewalk.measure.leaderboard import SAMPLES, leaderboard

    if time:
        duration(time, "--time")
    return leaderboard(model, to or None, extensions or (), time_limit=time, samples=samples or SAMPLES, **how)


def _show(result: ComparisonResult) -> None:
    from ropewalk.report.tables import advice, notes, terminal, terminal_extras, verdicts

    console, comparison = Console(markup=False), result.comparison
    for table in (terminal(comparison), *terminal_extras(comparison), verdicts(comparison)):
        console.print(table)
        print()
    for note in notes(comparison):
        print(textwrap.fill(note, 80))
    for line, why in result.stopped:
        print(textwrap.fill(f"{line}: {why}", 80, subsequent_indent="  "))
    print("\n" + textwrap.fill(advice(comparison), 80))
