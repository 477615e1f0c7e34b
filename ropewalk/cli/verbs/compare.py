"""`ropewalk compare`: which extension serves a model, measured; a table, a report, and a recommendation."""

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

from ropewalk.cli.models import Device, placed, require_plausible, tokenizer_of, weights_of
from ropewalk.cli.progress import doing
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
    typer.Argument(callback=path_of, help="a folder, or a name on the hub; the model that Ropewalk carries if none"),
]
Lines = Annotated[list[str] | None, typer.Argument(help="extensions, such as yarn rerope+log_n; about ten if none")]
Lengths = Annotated[str, typer.Option(metavar="LENGTHS", help="such as 512,2k,8k; 1, 2, 4 and 8 times if none")]
Corpus = Annotated[
    str,
    typer.Option(help="held-out text of stdlib, python, folder:PATH, FILE.jsonl, hub:NAME:FIELD, all:SOURCE"),
]
Tasks = Annotated[str, typer.Option(metavar="TASKS", help="such as passkey,needle:samples=8,ruler:kind=vt")]
Samples = Annotated[int, typer.Option(min=2, help="texts at each length")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the report goes")]
Workers = Annotated[int, typer.Option(min=0, help="processes that measure; one a core for a small model if none")]
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
) -> None:
    """Measure extensions of a model side by side and say which to use. Stopped, the same command goes on."""
    for line in extensions or [BARE]:
        require_plausible(model, "" if line == BARE else line)
    require_writable(Path(out))
    asked = [length(each, "--lengths") for each in lengths.split(",")] if lengths else []
    for option, given in {"--device": device, "--workers": workers}.items():
        if ray and given:
            raise InvalidValue(option, "left out where --ray is given: it has a worker for each GPU or CPU", given)
    from ropewalk.evaluation.compare.compare import tasks_of
    from ropewalk.evaluation.compare.ray_cluster import on_cluster
    from ropewalk.evaluation.compare.workers import side_by_side
    from ropewalk.evaluation.tasks.task_line import tasks_named
    from ropewalk.report.page import write_report

    chosen = tasks_named(tasks, samples) if tasks else tasks_of(samples)
    measuring = on_cluster(ray) if ray else side_by_side(workers)
    subject, read = _subject(model, "cpu" if ray else device, corpus, asked)
    found = _measured(subject, extensions or [], read, chosen, Path(out), measuring)
    page = write_report(found, Path(out), command=shlex.join(["ropewalk", *sys.argv[1:]]))
    _show(found)
    print(f"The report: {page} ({found.seconds:.0f} s of measuring, in sum over processors)")


def _subject(model: str, device: str, corpus: str, lengths: list[int]) -> tuple[Subject, list[int]]:
    """What is measured, and at which lengths: the trained one is always among them."""
    from ropewalk.evaluation.material.subject import Subject
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.probe.facts import trained_len

    tokenizer = tokenizer_of(model)
    loaded = placed(weights_of(model), device)
    own = taken_off(loaded)
    known = trained_len(loaded.config.get_text_config())
    read = sorted({known, *(lengths or [2 * known, 4 * known, 8 * known])})
    if read[0] < known:
        raise InvalidValue("--lengths", f"at least the trained length ({known})", read[0])
    return Subject(model=loaded, own=own, tokenizer=tokenizer, corpus=corpus, longest=read[-1]), read


def _measured(
    subject: Subject, given: list[str], lengths: list[int], tasks: Sequence[Task], out: Path, measuring: Measuring
) -> Comparison:
    from ropewalk.evaluation.compare.cells import cells
    from ropewalk.evaluation.compare.compare import LINES, compare
    from ropewalk.evaluation.compare.store import Store

    lines = [line for line in given or LINES if line != BARE]  # which is always among them
    total = len(list(cells(range(len({BARE, *lines})), tasks, lengths, lengths[0])))  # type: ignore[arg-type]
    done = count(1)
    with doing("measuring") as shown:
        return compare(
            subject,
            lines,
            lengths,
            Store(out / "cells.sqlite"),
            tasks=tasks,
            measuring=measuring,
            progress=lambda _: shown(next(done), total),
        )


def _show(found: Comparison) -> None:
    from ropewalk.report.tables import advice, notes, terminal, terminals_beside, verdicts

    Console().print(terminal(found), *terminals_beside(found))
    print("\n" + "\n".join(verdicts(found)) + "\n")
    for note in notes(found):
        print(textwrap.fill(note, 80, subsequent_indent="  "))
    print("\n" + textwrap.fill(advice(found), 80))
