"""`ropewalk fit`: search the best extension for a length, test it, and write it with the evidence."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ropewalk.cli import completion
from ropewalk.cli.browser import Open, Pictures, shown
from ropewalk.cli.models import require_plausible
from ropewalk.cli.printed_json import AsJson, command, print_json
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.errors import UnknownName
from ropewalk.extension.notation import duration
from ropewalk.folders import require_new, require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import NAME, path_of

if TYPE_CHECKING:
    from ropewalk.measure.report.html_page import PageTable
    from ropewalk.search.fit import FittedExtension

LOADERS = ("any", "static", "transformers", "vllm", "sglang", "llama.cpp")
OBJECTIVES = ("all", "far")
SPACES = ("usual", "schedules", "compositions")
TERMINAL_WIDTH = 80


To = Annotated[
    str,
    typer.Option(
        "--to", metavar="LENGTH", help="target length, such as 32k; by default 8, 4 or 2 times the trained length"
    ),
]
Budget = Annotated[
    str, typer.Option(metavar="TIME", help="time of the whole run, such as 90s or 2h; by default 20m, 90s with --quick")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="an answer within two minutes: 4 times the trained length, few texts")
]
Deployable = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        autocompletion=completion.one_of(LOADERS),
        help=f"engine that must load the result: {', '.join(LOADERS)}",
    ),
]
ObjectiveName = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="TOKENS",
        autocompletion=completion.one_of(OBJECTIVES),
        help="tokens whose loss counts: all; far: those that the base model predicts only with far context",
    ),
]
Damage = Annotated[
    float | None, typer.Option("--max-damage", help="largest rise of the loss on short texts, in nats per token")
]
Retrieval = Annotated[float | None, typer.Option("--min-retrieval", help="smallest share of passkeys found")]
Slowdown = Annotated[
    float | None, typer.Option("--max-slowdown", help="largest time per text, as a multiple of the base model's")
]
Samples = Annotated[
    int | None, typer.Option(min=2, help="texts to search on; by default 16, or as many as there is time for")
]
Judges = Annotated[
    int | None,
    typer.Option("--judges", min=2, help="texts of the final test; by default 24, or as many as there is time for"),
]
Seed = Annotated[int, typer.Option(min=0, help="random seed")]
Storage = Annotated[
    str, typer.Option(metavar="URL", help="Optuna storage of a shared study; by default a file in FOLDER")
]
Study = Annotated[str, typer.Option(metavar="NAME", help="name of the study; an existing one is resumed")]
Searched = Annotated[
    str,
    typer.Option(
        "--space",
        metavar="SPACE",
        autocompletion=completion.one_of(SPACES),
        help="usual: schedules, reaches, windows; schedules: those and scales alone; compositions: a reach, a "
        "schedule, scales, local layers",
    ),
]
Lengths = Annotated[
    str,
    typer.Option(
        metavar="LENGTHS",
        help="shorter lengths whose loss counts as much as the target's, separated by commas, such as 512,1k,2k",
    ),
]
JudgeOn = Annotated[
    str,
    typer.Option(metavar="CORPUS", help="a second corpus, of another kind, to test the answer on; '' for none"),
]
Workers = Annotated[int, typer.Option(min=1, help="processes on this machine")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="folder for the extension and the report")]
Save = Annotated[bool, typer.Option("--save", help="write the extended model too, to FOLDER/model")]


def fit(
    model: Model = NAME,
    to: To = "",
    budget: Budget = "",
    quick: Quick = False,
    deployable: Deployable = "any",
    objective: ObjectiveName = "all",
    max_damage: Damage = None,
    min_retrieval: Retrieval = None,
    max_slowdown: Slowdown = None,
    corpus: Corpus = "python",
    judge_on: JudgeOn = "all:descriptions",
    samples: Samples = None,
    judges: Judges = None,
    seed: Seed = 0,
    storage: Storage = "",
    study: Study = "fit",
    space: Searched = "usual",
    lengths: Lengths = "",
    workers: Workers = 1,
    out: Out = "ropewalk-fit",
    pictures: Pictures = "",
    save: Save = False,
    as_json: AsJson = False,
    open_: Open = False,
    *,
    options: LoadOptions,
) -> None:
    """Search for the best extension of a model for a target length, and test it on texts that the search does not see.

    The same command resumes a search that was stopped. Ctrl-C ends the search and tests the best so far.
    """
    _require_known(deployable, objective, space)
    if budget:
        duration(budget, "--budget")
    require_plausible(model)
    _require_places(model, Path(out), save=save)
    from ropewalk.search.fit import fit as measured

    result = measured(
        model,
        to or None,
        budget=budget,
        quick=quick,
        deployable=deployable,
        objective=objective,
        max_damage=max_damage,
        min_retrieval=min_retrieval,
        max_slowdown=max_slowdown,
        corpus=corpus,
        judge_on=judge_on,
        samples=samples,
        judges=judges,
        seed=seed,
        folder=out,
        storage=storage,
        study=study,
        space=space,
        lengths=lengths.split(",") if lengths else (),
        workers=workers,
        options=options,
        progress="lines",
    )
    shown(_report(result, model, Path(out), pictures, save=save, as_json=as_json), wanted=open_)


def _require_places(model: str, out: Path, *, save: bool) -> None:
    require_writable(out)
    if save:
        from ropewalk.hf.checkpoint.own_files import require_own_files

        require_new(out / "model")
        require_own_files(model)


def _require_known(deployable: str, objective: str, space: str) -> None:
    if deployable not in LOADERS:
        raise UnknownName("engine for --deployable", deployable, known=LOADERS)
    if objective not in OBJECTIVES:
        raise UnknownName("objective for --objective", objective, known=OBJECTIVES)
    if space not in SPACES:
        raise UnknownName("space for --space", space, known=SPACES)


def _report(result: FittedExtension, model: str, out: Path, pictures: str, *, save: bool, as_json: bool) -> Path:
    page, place = result.write(out, command=command(), pictures=pictures), out / "extension.json"
    saved = result.save(out / "model") if save else ""
    if as_json:
        print_json({"folder": str(out), "load": saved, **result.to_dict(), "command": command()})
        return page
    _print(result.table, result.sentences[0])
    if saved:
        print(saved)
    name = NAME if model == path_of(NAME) else model
    print(f"The extension: {place}; use the path as its name: ropewalk compare {name} {place}")
    print(f"The report: {page}")
    return page


def _print(rows: PageTable, words: str) -> None:
    drawn = Table(box=None, padding=(0, 1, 0, 0))
    for name in rows.head[:-1]:
        drawn.add_column(name, justify="left" if name == "extension" else "right", overflow="fold")
    for row in rows.rows:
        drawn.add_row(*row[:-1])
    Console(width=TERMINAL_WIDTH, markup=False).print(drawn)
    print("\n" + textwrap.fill(words, TERMINAL_WIDTH))
