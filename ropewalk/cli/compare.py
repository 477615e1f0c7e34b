"""`ropewalk compare`: which extension serves a model, measured; a table, a report, and a recommendation."""

from __future__ import annotations

import shlex
import sys
import textwrap
from itertools import count
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ropewalk.cli.models import Device, path_of, placed, require_plausible, tokenizer_of, weights_of
from ropewalk.cli.showing import doing
from ropewalk.errors import InvalidValue
from ropewalk.folders import require_writable
from ropewalk.models import NAME
from ropewalk.notation import length

Model = Annotated[str, typer.Argument(help="a folder, or a name on the hub; the model that Ropewalk carries if none")]
Lines = Annotated[list[str] | None, typer.Argument(help="extensions, such as yarn rerope+log_n; about ten if none")]
Lengths = Annotated[str, typer.Option(metavar="LENGTHS", help="such as 512,2k,8k; 1, 2, 4 and 8 times if none")]
Corpus = Annotated[str, typer.Option(help="held-out text: stdlib, python, folder:PATH, FILE.jsonl, hub:NAME:FIELD")]
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
    require_plausible(path_of(model))
    require_writable(Path(out))
    asked = [length(each, "--lengths") for each in lengths.split(",")] if lengths else []
    for option, given in {"--device": device, "--workers": workers}.items():
        if ray and given:
            raise InvalidValue(option, "left out where --ray is given: it has a worker for each GPU or CPU", given)
    _compare(path_of(model), extensions or [], asked, corpus, samples, tasks, Path(out), device, workers, ray)


def _compare(
    model: str,
    lines: list[str],
    lengths: list[int],
    corpus: str,
    samples: int,
    asked: str,
    out: Path,
    device: str,
    workers: int,
    ray: str,
) -> None:
    from ropewalk.evaluation.asked import tasks_named
    from ropewalk.evaluation.cells import cells
    from ropewalk.evaluation.cluster import on_cluster
    from ropewalk.evaluation.comparison import BARE, LINES, compare, tasks_of
    from ropewalk.evaluation.side_by_side import side_by_side
    from ropewalk.evaluation.store import Store
    from ropewalk.evaluation.subject import Subject
    from ropewalk.hf.facts import trained_len
    from ropewalk.report.page import write_report
    from ropewalk.report.tables import advice, notes, terminal, terminals_beside, verdicts

    tasks = tasks_named(asked, samples) if asked else tasks_of(samples)
    measuring = on_cluster(ray) if ray else side_by_side(workers)
    tokenizer = tokenizer_of(model)
    loaded = placed(weights_of(model), "cpu" if ray else device)
    known = trained_len(loaded.config.get_text_config())
    lengths = sorted({known, *(lengths or [2 * known, 4 * known, 8 * known])})
    if lengths[0] < known:
        raise InvalidValue("--lengths", f"at least the trained length ({known})", lengths[0])
    subject = Subject(model=loaded, tokenizer=tokenizer, corpus=corpus, longest=lengths[-1])
    chosen = lines or list(LINES)
    total = len(list(cells(range(len({BARE, *chosen})), tasks, lengths, known)))  # type: ignore[arg-type]
    done = count(1)
    with doing("measuring") as shown:
        store = Store(out / "cells.sqlite")
        found = compare(
            subject,
            chosen,
            lengths,
            store,
            tasks=tasks,
            measuring=measuring,
            progress=lambda _: shown(next(done), total),
        )
    page = write_report(found, out, command=shlex.join(["ropewalk", *sys.argv[1:]]))
    Console().print(terminal(found), *terminals_beside(found))
    print("\n" + "\n".join(verdicts(found)) + "\n")
    for note in notes(found):
        print(textwrap.fill(note, 80, subsequent_indent="  "))
    print("\n" + textwrap.fill(advice(found), 80) + f"\nThe report: {page} ({found.seconds:.0f} s of measuring in sum)")
