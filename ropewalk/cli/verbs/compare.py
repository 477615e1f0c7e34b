"""`ropewalk compare`: which extension suits a model, measured; a table, a report, and a recommendation."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ropewalk.cli.browser import Open, shown
from ropewalk.cli.models import Device, placed, require_plausible, tokenizer_of, weights_of
from ropewalk.cli.progress import showing_progress
from ropewalk.errors import InvalidValue
from ropewalk.folders import require_writable
from ropewalk.models import NAME, path_of
from ropewalk.notation import BARE, length

if TYPE_CHECKING:
    from ropewalk.evaluation.compare.compare import Comparison
    from ropewalk.evaluation.compare.runner import Measuring
    from ropewalk.evaluation.material.subject import Subject
    from ropewalk.evaluation.tasks import Task

Model = Annotated[
    str,
    typer.Argument(callback=path_of, help="a folder or a name on the hub; by default the small model in Ropewalk"),
]
Lines = Annotated[list[str] | None, typer.Argument(help="extensions, such as yarn rerope+log_n; by default nine")]
Lengths = Annotated[
    str, typer.Option(metavar="LENGTHS", help="such as 512,2k,8k; by default 1, 2, 4 and 8 times the trained length")
]
Corpus = Annotated[
    str,
    typer.Option(
        help="held-out text: stdlib, python, folder:PATH, FILE.jsonl, FILE.parquet, hub:NAME:FIELD or all:SOURCE"
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
    open_: Open = False,
) -> None:
    """Measure extensions of a model side by side and say which to use. If interrupted, run it again to continue."""
    for line in extensions or [BARE]:
        require_plausible(model, "" if line == BARE else line)
    require_writable(Path(out))
    parsed = [length(text, "--lengths") for text in lengths.split(",")] if lengths else []
    for option, value in {"--device": device, "--workers": workers}.items():
        if ray and value:
            sentence = f"give --ray or {option}, not both: the cluster has a worker for each GPU or CPU"
            raise InvalidValue.because(option, sentence)
    from ropewalk.evaluation.compare.compare import tasks_of
    from ropewalk.evaluation.compare.ray_cluster import on_cluster
    from ropewalk.evaluation.compare.workers import side_by_side
    from ropewalk.evaluation.tasks.task_line import tasks_named
    from ropewalk.report.comparison import write_report

    chosen = tasks_named(tasks, samples) if tasks else tasks_of(samples)
    measuring = on_cluster(ray) if ray else side_by_side(workers)
    subject, all_lengths = _subject(model, "cpu" if ray else device, corpus, parsed)
    comparison = _measured(subject, extensions or [], all_lengths, chosen, Path(out), measuring)
    page = write_report(comparison, Path(out), command=shlex.join(["ropewalk", *sys.argv[1:]]))
    _show(comparison)
    print(f"Report: {page} ({comparison.seconds:.0f} s of measuring, summed over processes)")
    shown(page, wanted=open_)


def _subject(model: str, device: str, corpus: str, lengths: list[int]) -> tuple[Subject, list[int]]:
    """What is measured, and at which lengths: the trained length is always one of them."""
    from ropewalk.evaluation.material.subject import Subject
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.probe.facts import trained_len

    tokenizer = tokenizer_of(model)
    loaded = placed(weights_of(model), device)
    trained_under = taken_off(loaded)
    known = trained_len(loaded.config.get_text_config())
    lengths = sorted({known, *(lengths or [2 * known, 4 * known, 8 * known])})
    if lengths[0] < known:
        raise InvalidValue("--lengths", f"at least the trained length ({known})", lengths[0])
    return Subject(model=loaded, own=trained_under, tokenizer=tokenizer, corpus=corpus, longest=lengths[-1]), lengths


def _measured(
    subject: Subject, names: list[str], lengths: list[int], tasks: Sequence[Task], out: Path, measuring: Measuring
) -> Comparison:
    from ropewalk.evaluation.compare.cells import cells
    from ropewalk.evaluation.compare.compare import LINES, compare
    from ropewalk.evaluation.compare.store import Store

    lines = [line for line in names or LINES if line != BARE]  # the base model is always measured
    total = len(list(cells(range(len({BARE, *lines})), tasks, lengths, lengths[0])))  # type: ignore[arg-type]
    done = count(1)
    with showing_progress("measuring") as progress:
        return compare(
            subject,
            lines,
            lengths,
            Store(out / "cells.sqlite"),
            tasks=tasks,
            measuring=measuring,
            progress=lambda _: progress(next(done), total),
        )


def _show(comparison: Comparison) -> None:
    from ropewalk.report.tables import advice, notes, terminal, terminal_extras, verdicts

    console = Console()
    for table in (terminal(comparison), *terminal_extras(comparison), verdicts(comparison)):
        console.print(table)
        print()
    for note in notes(comparison):
        print(textwrap.fill(note, 80))
    print("\n" + textwrap.fill(advice(comparison), 80))
