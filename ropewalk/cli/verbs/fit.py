"""`ropewalk fit`: search the best extension for a length, test it, and write it with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli import completion
from ropewalk.cli.models import require_known, require_plausible
from ropewalk.cli.output import AsJson, Open, Pictures, command, open_page, print_result
from ropewalk.cli.verbs.compare import Corpus, Model
from ropewalk.extension.notation import duration
from ropewalk.folders import require_new, require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import NAME, path_of
from ropewalk.search.conditions import LOADERS, OBJECTIVES, SPACES, Conditions

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
        "schedule, scales, local layers; heads: which keep all keys, and their factors; layer_factors: those of layers",
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option(
        "--also",
        metavar="EXTENSION",
        callback=require_known,
        help="a line of your own to try beside those set by hand, such as ./my.py:Slope:factor=8; may be repeated",
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
    str, typer.Option(metavar="CORPUS", help="a second corpus, of another kind, to test the answer on; '' for none")
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
    also: Also = None,
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
    named: dict[str, Any] = {"deployable": deployable, "objective": objective, "space": space}
    conditions = Conditions(
        max_damage=max_damage,
        min_retrieval=min_retrieval,
        max_slowdown=max_slowdown,
        **named,
        also=tuple(also or ()),
        lengths=tuple(lengths.split(",")) if lengths else (),  # type: ignore[arg-type]
    )
    _require_readable(model, budget, Path(out), save=save)
    from ropewalk.search.fit import SearchOptions, fit as search

    searched = {"quick": quick, "seed": seed, "storage": storage, "study": study}
    run = SearchOptions.of(options, workers=workers, progress="lines", **searched)
    result = search(
        model,
        to or None,
        conditions=conditions,
        budget=budget,
        corpus=corpus,
        judge_on=judge_on,
        samples=samples,
        judges=judges,
        folder=out,
        options=run,
    )
    page = result.write(out, command=command(), pictures=pictures)
    saved = result.save(Path(out) / "model") if save else ""
    print_result(result, out, as_json=as_json, load=saved)
    _print_places(model, Path(out), page, saved, wanted=not as_json)
    open_page(page, wanted=open_)


def _print_places(model: str, out: Path, page: Path, saved: str, *, wanted: bool) -> None:
    if not wanted:
        return
    if saved:
        print(saved)
    name, place = NAME if model == path_of(NAME) else model, out / "extension.json"
    print(f"The extension: {place}; use the path as its name: ropewalk compare {name} {place}")
    print(f"The report: {page}")


def _require_readable(model: str, budget: str, out: Path, *, save: bool) -> None:
    if budget:
        duration(budget, "--budget")
    require_plausible(model)
    require_writable(out)
    if save:
        from ropewalk.hf.checkpoint.own_files import require_own_files

        require_new(out / "model")
        require_own_files(model)
