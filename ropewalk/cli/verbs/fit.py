"""`ropewalk fit`: search the best extension for a length, test it, and write it with the evidence."""

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

from ropewalk.cli.browser import Open, shown
from ropewalk.cli.models import Device, placed, require_plausible, target, tokenizer_of, weights_of
from ropewalk.cli.progress import WorkProgress, showing_progress
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.errors import DoesNotFit, UnknownName
from ropewalk.folders import require_new
from ropewalk.models import NAME, path_of
from ropewalk.notation import duration

if TYPE_CHECKING:
    from ropewalk.search.final_test import FitResult
    from ropewalk.search.fitting import Fitting

LOADERS = ("any", "static", "transformers", "vllm", "sglang", "llama.cpp")
WIDTH = 80


@dataclass(frozen=True)
class FitDefaults:
    """Defaults of the options."""

    budget: int  # seconds of the whole run
    samples: int  # texts to search on
    judges: int  # other texts for the final test
    times: int  # target length in trained lengths
    most: int | None  # hand-set extensions that are tested beside the answer


USUAL, QUICK = FitDefaults(1200, 16, 24, 8, None), FitDefaults(90, 3, 3, 4, 3)

To = Annotated[
    str,
    typer.Option("--to", metavar="LENGTH", help="target length, such as 32k; by default 8 times the trained length"),
]
Budget = Annotated[
    str, typer.Option(metavar="TIME", help="time of the whole run, such as 90s or 2h; by default 20m, 90s with --quick")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="an answer within two minutes: 4 times the trained length, few texts")
]
Deployable = Annotated[
    str, typer.Option(metavar="ENGINE", help=f"engine that must load the result: {', '.join(LOADERS)}")
]
Damage = Annotated[
    float | None, typer.Option("--max-damage", help="largest rise of the loss on short texts, in nats per token")
]
Retrieval = Annotated[float | None, typer.Option("--min-retrieval", help="smallest share of passkeys found")]
Slowdown = Annotated[
    float | None, typer.Option("--max-slowdown", help="largest time per text, over that of the base model")
]
Samples = Annotated[int | None, typer.Option(min=2, help="texts to search on; by default 16, 3 with --quick")]
Judges = Annotated[
    int | None, typer.Option("--judges", min=2, help="texts of the final test; by default 24, 3 with --quick")
]
Seed = Annotated[int, typer.Option(min=0, help="random seed")]
Storage = Annotated[
    str, typer.Option(metavar="URL", help="Optuna storage of a shared study; by default a file in FOLDER")
]
Study = Annotated[str, typer.Option(metavar="NAME", help="name of the study; an existing one is resumed")]
Workers = Annotated[int, typer.Option(min=1, help="processes on this machine")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="folder for the extension and the report")]
Save = Annotated[bool, typer.Option("--save", help="write the extended model too, to FOLDER/model")]


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
    open_: Open = False,
) -> None:
    """Search for the best extension of a model for a target length, and test it on texts that the search does not see.

    The same command resumes a search that was stopped. Ctrl-C ends the search and tests the best so far.
    """
    pace = QUICK if quick else USUAL
    began, seconds = time.time(), duration(budget, "--budget") if budget else pace.budget
    if deployable not in LOADERS:
        raise UnknownName("engine for --deployable", deployable, known=LOADERS)
    require_plausible(model)
    if save:
        require_new(Path(out) / "model")
    limits = {"max_damage": max_damage, "min_retrieval": min_retrieval, "max_slowdown": max_slowdown}
    texts = {"samples": samples or pace.samples, "judges": judges or pace.judges}
    conditions = {"deployable": deployable, **texts, "seed": seed, **limits}
    request = FitRequest(
        model=model,
        corpus=corpus,
        device=device,
        length=target(to),
        conditions=conditions,
        pace=pace,
        storage=storage or None,
        study=study,
        workers=workers,
        out=Path(out),
        deadline=began + seconds,
        budget=seconds,
    )
    _answer(request, save=save, open_=open_)


def _answer(request: FitRequest, *, save: bool, open_: bool) -> None:
    from ropewalk.report.fitting import table, words, write_fit
    from ropewalk.search.workers import helped

    fitting = _opened(request)
    fitting.begin()  # before others join it
    with helped(request.workers, partial(_opened, request)), showing_progress(request.study) as progress:
        _search(fitting, progress)
        fitting.judge_share(0)
    with showing_progress("testing") as progress:
        result = fitting.judge(lambda line, done, of: progress(done, of, f"testing {line}"))
    page = write_fit(result, request.out, command=shlex.join(["ropewalk", *sys.argv[1:]]))
    _print(table(result), words(result))
    if save:
        print(_saved(fitting, result, request.out / "model"))
    place, model = request.out / "extension.json", NAME if request.model == path_of(NAME) else request.model
    print(f"The extension: {place}; use the path as its name: ropewalk compare {model} {place}")
    print(f"The report: {page}")
    shown(page, wanted=open_)


def _opened(request: FitRequest) -> Fitting:
    """This process's own model and texts, and the study that all share."""
    from ropewalk.evaluation.material.subject import Subject
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.search.fitting import Fitting
    from ropewalk.search.goal import Goal

    tokenizer = tokenizer_of(request.model)
    loaded = placed(weights_of(request.model), request.device)
    trained_under = taken_off(loaded)
    trained = trained_len(loaded.config.get_text_config())
    length = request.length or request.pace.times * trained
    if length <= trained:
        raise DoesNotFit("--to", f"above the trained length ({trained})", length)
    subject = Subject(model=loaded, own=trained_under, tokenizer=tokenizer, corpus=request.corpus, longest=length)
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


def _search(fitting: Fitting, progress: WorkProgress) -> None:
    began, end = time.time(), fitting.end
    if end is not None and end <= began:
        more = fitting.deadline and began - end  # what the final test needs beyond the budget
        words = (
            f"the budget is about {more:.0f} s too short for the final test: it takes longer, and little is searched"
        )
        print(f"ropewalk: {words}", file=sys.stderr)
    best: list[float] = []
    tried: list[int] = []

    def watch(trial: Any) -> None:
        tried.append(trial.number)
        if trial.keeps:
            best.append(trial.figures.loss)
        label = f"{len(tried)} tried, best {min(best):.3f}" if best else f"{len(tried)} tried"
        progress(time.time() - began, max(1.0, (end or began) - began), label)

    if fitting.search(watch=watch):
        print("ropewalk: search stopped; the best so far is tested (Ctrl-C again stops the test too)", file=sys.stderr)


def _saved(fitting: Fitting, result: FitResult, folder: Path) -> str:
    """What to load, and how."""
    from ropewalk.hf import export
    from ropewalk.hf import save as write

    model, goal, tokenizer = fitting.subject.model, result.goal, fitting.subject.tokenizer
    with fitting.subject.under(result.written.extension):
        if goal.deployable in LOADERS[2:]:
            length = goal.target_len
            return str(export(model, folder, target=goal.deployable, target_len=length, tokenizer=tokenizer))
        how = write(model, folder, target_len=goal.target_len, tokenizer=tokenizer)
    return f"The model: {folder}; load it with {how}"


def _print(rows: Any, words: str) -> None:
    from rich.table import Table

    drawn = Table(box=None, padding=(0, 1, 0, 0))
    for name in rows.head[:-1]:
        drawn.add_column(name, justify="left" if name == "extension" else "right", overflow="fold")
    for row in rows.rows:
        drawn.add_row(*row[:-1])
    Console(width=WIDTH).print(drawn)
    print("\n" + textwrap.fill(words, WIDTH))
