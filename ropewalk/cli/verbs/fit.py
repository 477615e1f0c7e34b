"""`ropewalk fit`: the best extension for a length, found and judged; what to load, and the evidence."""

from __future__ import annotations

import shlex
import sys
import textwrap
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ropewalk.cli.models import Device, placed, require_plausible, target, tokenizer_of, weights_of
from ropewalk.cli.progress import WorkProgress, showing_progress
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.errors import DoesNotFit, UnknownName
from ropewalk.folders import require_new
from ropewalk.models import NAME, path_of
from ropewalk.notation import duration

if TYPE_CHECKING:
    from ropewalk.search.fitting import Fitting
    from ropewalk.search.judging import FitResult

LOADERS = ("any", "static", "transformers", "vllm", "sglang", "llama.cpp")
WIDTH = 80


@dataclass(frozen=True)
class FitDefaults:
    """What is taken where nothing is said."""

    budget: int  # seconds, all in all
    samples: int  # texts to fit on
    judges: int  # other texts to judge by
    times: int  # trained lengths to reach
    most: int | None  # of what was set by hand, so many are judged beside the answer


USUAL, QUICK = FitDefaults(1200, 16, 24, 8, None), FitDefaults(90, 3, 3, 4, 3)

To = Annotated[str, typer.Option("--to", metavar="LENGTH", help="such as 32k; 8 times the trained length if none")]
Budget = Annotated[
    str, typer.Option(metavar="TIME", help="of everything, such as 90s or 2h; 20m if none, 90s if quick")
]
Quick = Annotated[bool, typer.Option("--quick", help="an answer within two minutes: 4 times, few texts")]
Deployable = Annotated[str, typer.Option(metavar="WHO", help=f"who is to load it: {', '.join(LOADERS)}")]
Damage = Annotated[float | None, typer.Option("--max-damage", help="nats a token that short texts may lose")]
Retrieval = Annotated[float | None, typer.Option("--min-retrieval", help="share of pass keys that must be found")]
Slowdown = Annotated[float | None, typer.Option("--max-slowdown", help="times the bare model's time")]
Samples = Annotated[int | None, typer.Option(min=2, help="texts to fit on; 16 if none, 3 if quick")]
Judges = Annotated[int | None, typer.Option("--judges", min=2, help="other texts to judge by; 24 if none, 3 if quick")]
Seed = Annotated[int, typer.Option(min=0, help="of everything that is drawn")]
Storage = Annotated[
    str, typer.Option(metavar="URL", help="of a study that is shared, as Optuna has it; a file if none")
]
Study = Annotated[str, typer.Option(metavar="NAME", help="of the study; the same one goes on")]
Workers = Annotated[int, typer.Option(min=1, help="processes on this machine")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where the answer and its evidence go")]
Save = Annotated[bool, typer.Option("--save", help="write the extended model too, as FOLDER/model")]


@dataclass(frozen=True)
class FitRequest:
    """What the command says; every worker reads it, and loads the model for itself."""

    model: str
    corpus: str
    device: str
    length: int | None
    conditions: dict[str, Any]
    pace: FitDefaults
    storage: str | None
    study: str
    workers: int
    out: Path
    deadline: float
    budget: float


def fit(
    model: Model = NAME,
    to: To = "",
    budget: Budget = "",
    quick: Quick = False,
    deployable: Deployable = "any",
    max_damage: Damage = None,
    min_retrieval: Retrieval = None,
    max_slowdown: Slowdown = None,
    corpus: Corpus = "python",
    samples: Samples = None,
    judges: Judges = None,
    seed: Seed = 0,
    storage: Storage = "",
    study: Study = "fit",
    workers: Workers = 1,
    out: Out = "ropewalk-fit",
    save: Save = False,
    device: Device = "",
) -> None:
    """Search the best extension of a model for a length, and judge it on texts that the search does not see.

    Stopped, the same command goes on; Ctrl-C ends the search and judges the best so far.
    """
    pace = QUICK if quick else USUAL
    began, seconds = time.time(), duration(budget, "--budget") if budget else pace.budget
    if deployable not in LOADERS:
        raise UnknownName("--deployable engine", deployable, known=LOADERS)
    require_plausible(model)
    if save:
        require_new(Path(out) / "model")
    limits = {"max_damage": max_damage, "min_retrieval": min_retrieval, "max_slowdown": max_slowdown}
    texts = {"samples": samples or pace.samples, "judges": judges or pace.judges}
    given = {"deployable": deployable, **texts, "seed": seed, **limits}
    request = FitRequest(
        model=model,
        corpus=corpus,
        device=device,
        length=target(to),
        conditions=given,
        pace=pace,
        storage=storage or None,
        study=study,
        workers=workers,
        out=Path(out),
        deadline=began + seconds,
        budget=seconds,
    )
    _answer(request, save=save)


def _answer(request: FitRequest, *, save: bool) -> None:
    from ropewalk.report.fitting import table, words, write_fit
    from ropewalk.search.workers import helped

    own = _opened(request)
    own.begin()  # before others join it
    with helped(request.workers, partial(_opened, request)), showing_progress(request.study) as shown:
        _search(own, shown)
        own.judge_share(0)
    with showing_progress("judging") as shown:
        found = own.judge(lambda line, done, of: shown(done, of, f"judging {line}"))
    page = write_fit(found, request.out, command=shlex.join(["ropewalk", *sys.argv[1:]]))
    _print(table(found), words(found))
    if save:
        print(_saved(own, found, request.out / "model"))
    place, model = request.out / "extension.json", NAME if request.model == path_of(NAME) else request.model
    print(f"The extension: {place}, named like any other: ropewalk compare {model} {place}")
    print(f"The report: {page}")


def _opened(request: FitRequest) -> Fitting:
    """This process's own model and texts, and the study that all share."""
    from ropewalk.evaluation.material.subject import Subject
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.search.fitting import Fitting
    from ropewalk.search.goal import Goal

    tokenizer = tokenizer_of(request.model)
    loaded = placed(weights_of(request.model), request.device)
    own = taken_off(loaded)
    known = trained_len(loaded.config.get_text_config())
    length = request.length or request.pace.times * known
    if length <= known:
        raise DoesNotFit("--to", f"above the trained length ({known})", length)
    subject = Subject(model=loaded, own=own, tokenizer=tokenizer, corpus=request.corpus, longest=length)
    return Fitting(
        subject=subject,
        goal=Goal(facts=subject.facts, target_len=length, **request.conditions),
        folder=request.out,
        storage=request.storage,
        name=request.study,
        deadline=request.deadline,
        budget=request.budget,
        workers=request.workers,
        most=request.pace.most,
    )


def _search(own: Fitting, shown: WorkProgress) -> None:
    began, end = time.time(), own.end
    if end is not None and end <= began:
        more = own.deadline and began - end  # what judging asks for beyond the budget
        words = f"the budget is about {more:.0f} s short of what judging takes: it takes longer, and little is searched"
        print(f"ropewalk: {words}", file=sys.stderr)
    best: list[float] = []
    seen: list[int] = []

    def watch(each: Any) -> None:
        seen.append(each.number)
        if each.keeps:
            best.append(each.figures.loss)
        said = f"{len(seen)} tried, best {min(best):.3f}" if best else f"{len(seen)} tried"
        shown(time.time() - began, max(1.0, (end or began) - began), said)

    if own.search(watch=watch):
        print("ropewalk: stopped; the best so far is judged (Ctrl-C again leaves that too)", file=sys.stderr)


def _saved(own: Fitting, found: FitResult, folder: Path) -> str:
    """What to load, and how."""
    from ropewalk.hf import export
    from ropewalk.hf import save as write

    model, goal, tokenizer = own.subject.model, found.goal, own.subject.tokenizer
    with own.subject.under(found.written.extension):
        if goal.deployable in LOADERS[2:]:
            length = goal.target_len
            return str(export(model, folder, target=goal.deployable, target_len=length, tokenizer=tokenizer))
        how = write(model, folder, target_len=goal.target_len, tokenizer=tokenizer)
    return f"The model: {folder}, to be loaded by {how}"


def _print(rows: Any, words: str) -> None:
    from rich.table import Table

    drawn = Table(box=None, padding=(0, 1, 0, 0))
    for name in rows.head[:-1]:
        drawn.add_column(name, justify="left" if name == "extension" else "right", overflow="fold")
    for row in rows.rows:
        drawn.add_row(*row[:-1])
    Console(width=WIDTH).print(drawn)
    print("\n" + textwrap.fill(words, WIDTH))
