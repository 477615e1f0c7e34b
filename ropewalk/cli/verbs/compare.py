"""`ropewalk compare`: which extension suits a model, measured; a table, a report, and a recommendation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli import completion
from ropewalk.cli.exit_status import NOT_THE_SAME, STOPPED
from ropewalk.cli.models import extension_argument, model_argument, require_plausible
from ropewalk.cli.output import AsJson, Open, Out, Pictures, command, only_json, open_page, print_json, print_result
from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import BARE, duration, tokens
from ropewalk.folders import require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import NAME, named, path_of

Model = Annotated[
    str, model_argument("a folder, a GGUF file or a name on the hub; by default the small model in Ropewalk")
]
Lines = Annotated[list[str] | None, extension_argument("extensions, such as yarn rerope+log_n; by default five")]
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
        " hub:NAME:FIELD, A+B or all:SOURCE; '' is stdlib, or all:stdlib where that has too few long texts",
    ),
]
Tasks = Annotated[str, typer.Option(metavar="TASKS", help="such as passkey,ruler:kind=vt,./my_task.py")]
Samples = Annotated[
    int | None,
    typer.Option(min=2, help="texts for each length; by default 8 in rounds of 1, 2, 4 and 8, with --all 24 in three"),
]
All = Annotated[
    bool,
    typer.Option("--all", help="every preset that applies, besides the extensions given: a leaderboard at one length"),
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
Workers = Annotated[int, typer.Option(min=0, help="processes that measure; 0: one for each core if the model is small")]
Ray = Annotated[str, typer.Option(metavar="ADDRESS", help="measure on a Ray cluster: HOST:PORT, auto or local")]
Submit = Annotated[
    str,
    typer.Option(
        metavar="FOLDER", help="write a row of the leaderboard for each extension there; needs --to or --lengths"
    ),
]
Force = Annotated[bool, typer.Option("--force", help="with --submit: replace rows that are there")]
Redo = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="measure a row again from its settings, and say whether its figures agree; with --samples that many texts",
    ),
]


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
    submit: Submit = "",
    redo: Redo = "",
    force: Force = False,
    as_json: AsJson = False,
    open_: Open = False,
    *,
    options: LoadOptions,
) -> None:
    """Measure extensions of a model side by side and say which to use. If interrupted, run it again to continue."""
    for line in extensions or [BARE]:
        require_plausible(model, "" if line == BARE else line)
    require_writable(Path(out))
    _require_together(lengths, to, time, all_=all_)
    _require_alone(ray, workers, options.device)
    if (lengths or to) and not redo:
        _require_beyond(model, lengths or to, "--lengths" if lengths else "--to", options)
    others = {"extensions": extensions, "lengths": lengths or to, "tasks": tasks, "time": time, "all": all_}
    from ropewalk.measure.arguments import RunOptions

    run = RunOptions.of(options, workers=workers, ray=ray, progress="lines")
    if redo:
        _require_settings_of_row({**others, "submit": submit, "force": force})
        _redo(redo, model, corpus, samples, run, as_json=as_json)
        return
    if submit or force:
        _require_rows(submit, model, extensions or [], lengths or to, all_=all_, force=force)
    from ropewalk.measure.compare import ComparisonResult, compare as measure
    from ropewalk.measure.leaderboard import leaderboard

    how: dict[str, Any] = {"tasks": tasks, "corpus": corpus, "samples": samples, "time_limit": time, "folder": out}
    result: ComparisonResult
    if all_:
        result = leaderboard(model, to or None, extensions or (), **how, options=run)
    else:
        steps = (lengths or to).split(",") if lengths or to else ()
        how["options"] = replace(run, after_round=lambda so_far: so_far.write(out, command=command()))
        result = measure(model, extensions or (), lengths=steps, **how)
    page = result.write(out, command=command(), pictures=pictures)
    rows = result.submit(submit, force=force) if submit and not result.interrupted else []
    print_result(result, out, as_json=as_json)
    if not as_json:
        print(f"Report: {page} ({result.comparison.seconds:.0f} s of measuring, summed over processes)")
        print("".join(f"Row: {path}\n" for path in rows) + "The same command goes on.\n" * result.interrupted, end="")
    open_page(page, wanted=open_)
    if result.interrupted:
        raise typer.Exit(STOPPED)


def _require_alone(ray: str, workers: int, device: str) -> None:
    for option, value in {"device": device, "workers": workers}.items():
        if ray and value:
            sentence = f"give --ray or --{option}, not both: the cluster has a worker for each GPU or CPU"
            raise InvalidValue.because(option, sentence)


def _require_beyond(model: str, lengths: str, option: str, options: LoadOptions) -> None:
    """Refuse lengths below the trained one by the config alone, before weights are read; an adapter has none."""
    from ropewalk.measure.comparison.plan import require_trained_length
    from ropewalk.measure.opened_model import stated_lengths

    asked = tokens(option, lengths.split(","))
    if stated := stated_lengths(model, options):
        require_trained_length(asked, stated.trained, option)


def _require_together(lengths: str, to: str, time: str, *, all_: bool) -> None:
    """Refuse lengths that say two things, and a time that is none."""
    if time and time != "none":
        duration(time, "--time")
    if lengths and all_:
        sentence = "--lengths and --all do not go together: a leaderboard has one target length"
        raise InvalidValue.because("lengths", sentence, remedy="give --to LENGTH instead")
    if lengths and to:
        sentence = "--lengths and --to do not go together: both say how long texts are"
        raise InvalidValue.because("to", sentence, remedy="give one of them")


def _require_rows(submit: str, model: str, extensions: list[str], lengths: str, *, all_: bool, force: bool) -> None:
    """Refuse, before anything is measured, what gives no row, and rows that are there."""
    example = "ropewalk compare MODEL EXTENSION --to LENGTH --submit FOLDER"
    for wrong, sentence, remedy in (
        (not submit, "--force is for --submit alone", "leave it out"),
        (all_, "--submit and --all do not go together: rows are of extensions that you name", "leave one out"),
        (not extensions, "--submit needs extensions", example),
        (not lengths, "--submit needs the length of the texts", example),
    ):
        if wrong:
            raise InvalidValue.because("submit", sentence, remedy=remedy)
    require_writable(Path(submit))
    from ropewalk.measure.report.submitted import require_new_row, row_path

    for line in extensions:
        require_new_row(row_path(submit, named(model), max(tokens("lengths", lengths.split(","))), line), force=force)


def _require_settings_of_row(others: dict[str, Any]) -> None:
    """Refuse what would measure another row."""
    for name, value in others.items():
        if value:
            sentence = f"--redo measures what the row says, which leaves no choice of {name}"
            raise InvalidValue.because(name, sentence, remedy="leave it out")


def _redo(path: str, model: str, corpus: str, samples: int | None, run: LoadOptions, *, as_json: bool) -> None:
    """Measure a row again; the exit status says whether its figures agree."""
    from ropewalk.measure.redo import redo

    with only_json(as_json):
        done = redo(path, "" if model == path_of(NAME) else model, corpus=corpus, samples=samples, options=run)
    if as_json:
        print_json({**done._asdict(), "figures": [one._asdict() for one in done.figures], "agrees": done.agrees})
    else:
        print("\n".join(done.words))
    if not done.agrees:
        raise typer.Exit(NOT_THE_SAME)
