"""`ropewalk compare`: which extension suits a model, measured; a table, a report, and a recommendation."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ropewalk.cli import completion
from ropewalk.cli.browser import Open, Pictures, shown
from ropewalk.cli.exit_status import STOPPED
from ropewalk.cli.models import known, require_plausible
from ropewalk.cli.printed_json import AsJson, command, print_json
from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import BARE, duration
from ropewalk.folders import require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import NAME, path_of

if TYPE_CHECKING:
    from ropewalk.measure.api.comparing import ComparisonResult

Model = Annotated[
    str,
    typer.Argument(
        callback=path_of,
        autocompletion=completion.models,
        help="a folder, a GGUF file or a name on the hub; by default the small model in Ropewalk",
    ),
]
Lines = Annotated[
    list[str] | None,
    typer.Argument(
        callback=known,
        autocompletion=completion.extensions,
        help="extensions, such as yarn rerope+log_n; by default five",
    ),
]
Lengths = Annotated[
    str,
    typer.Option(
        metavar="LENGTHS",
        help="such as 512,2k,8k; by default 1, 2 and 4 times the trained length, as far as time and memory allow",
    ),
]
Corpus = Annotated[
    str,
    typer.Option(
        autocompletion=completion.one_of(completion.CORPORA),
        help="held-out text: stdlib, python, recent, prose, descriptions, folder:PATH, FILE.jsonl, FILE.parquet,"
        " hub:NAME:FIELD, A+B or all:SOURCE; by default stdlib, or all:stdlib where that has too few long texts",
    ),
]
Tasks = Annotated[str, typer.Option(metavar="TASKS", help="such as passkey,ruler:kind=vt,./my_task.py")]
Samples = Annotated[
    int | None,
    typer.Option(min=2, help="texts for each length; by default 8 in rounds of 1, 2, 4 and 8, with --all 24 in three"),
]
All = Annotated[
    bool,
    typer.Option("--all", help="every preset that applies, besides the extensions: a leaderboard at one length"),
]
To = Annotated[
    str,
    typer.Option("--to", metavar="LENGTH", help="the longest length; with --all by default 8 times the trained length"),
]
Time = Annotated[
    str,
    typer.Option(
        "--time",
        metavar="TIME",
        help="time limit, such as 30m, or none; by default 30m on a CPU if --samples is not given. The last complete"
        " round counts, and the first is always completed",
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the report is written")]
Workers = Annotated[int, typer.Option(min=0, help="processes that measure; 0: one for each core if the model is small")]
Ray = Annotated[str, typer.Option(metavar="ADDRESS", help="measure on a Ray cluster: HOST:PORT, auto or local")]


def compare(
    model: Model = NAME,
    extensions: Lines = None,
    lengths: Lengths = "",
    corpus: Corpus = "",
    samples: Samples = None,
    tasks: Tasks = "",
    all_: All = False,
    to: To = "",
    time: Time = "",
    out: Out = "ropewalk-report",
    pictures: Pictures = "",
    workers: Workers = 0,
    ray: Ray = "",
    as_json: AsJson = False,
    open_: Open = False,
    *,
    options: LoadOptions,
) -> None:
    """Measure extensions of a model side by side and say which to use. If interrupted, run it again to continue."""
    for line in extensions or [BARE]:
        require_plausible(model, "" if line == BARE else line)
    require_writable(Path(out))
    for option, value in {"device": options.device, "workers": workers}.items():
        if ray and value:
            sentence = f"give --ray or --{option}, not both: the cluster has a worker for each GPU or CPU"
            raise InvalidValue.because(option, sentence)
    _require_together(lengths, to, all_)
    if time and time != "none":
        duration(time, "--time")
    how: dict[str, Any] = {
        "corpus": corpus,
        "tasks": tasks,
        "folder": out,
        "workers": workers,
        "ray": ray,
        "options": options,
        "progress": "lines",
    }

    def so_far(result: ComparisonResult) -> None:
        result.write(out, command=command())

    result = (
        _board(model, extensions, to, time, samples, how)
        if all_
        else _side_by_side(model, extensions, lengths or to, time, samples, {**how, "after_round": so_far})
    )
    page = result.write(out, command=command(), pictures=pictures)
    if as_json:
        print_json({"folder": out, **result.to_dict(), "command": command()})
    else:
        _show(result)
        print(f"Report: {page} ({result.comparison.seconds:.0f} s of measuring, summed over processes)")
        if result.interrupted:
            print("The same command goes on.")
    shown(page, wanted=open_)
    if result.interrupted:
        raise typer.Exit(STOPPED)


def _require_together(lengths: str, to: str, all_: bool) -> None:
    """Refuse lengths that say two things."""
    if lengths and all_:
        sentence = "--lengths and --all do not go together: a leaderboard has one target length"
        raise InvalidValue.because("lengths", sentence, remedy="give --to LENGTH instead")
    if lengths and to:
        sentence = "--lengths and --to do not go together: both say how long texts are"
        raise InvalidValue.because("to", sentence, remedy="give one of them")


def _side_by_side(
    model: str, extensions: list[str] | None, lengths: str, time: str, samples: int | None, how: dict[str, Any]
) -> ComparisonResult:
    from ropewalk.measure.api.comparing import compare as measured

    asked = lengths.split(",") if lengths else ()
    return measured(model, extensions or (), lengths=asked, time_limit=time, samples=samples, **how)


def _board(
    model: str, extensions: list[str] | None, to: str, time: str, samples: int | None, how: dict[str, Any]
) -> ComparisonResult:
    from ropewalk.measure.api.leaderboard import MANY_SAMPLES, leaderboard

    limit, how = "" if time == "none" else time, {**how, "corpus": how["corpus"] or "stdlib"}
    return leaderboard(model, to or None, extensions or (), time_limit=limit, samples=samples or MANY_SAMPLES, **how)


def _show(result: ComparisonResult) -> None:
    from ropewalk.measure.report.advice import advice
    from ropewalk.measure.report.tables import notes, terminal, terminal_extras, verdicts

    console, comparison = Console(markup=False), result.comparison
    for table in (terminal(comparison), *terminal_extras(comparison), verdicts(comparison)):
        console.print(table)
        print()
    for note in notes(comparison):
        print(textwrap.fill(note, 80))
    for line, why in result.stopped:
        print(textwrap.fill(f"{line}: {why}", 80, subsequent_indent="  "))
    print("\n" + textwrap.fill(advice(comparison), 80))
