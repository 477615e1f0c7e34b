"""`ropewalk eval`: tasks of lm-evaluation-harness on an extended model; a table, and everything as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ropewalk.cli.models import Extension, Model, load_and_place, require_plausible, target
from ropewalk.cli.output import AsJson, command, only_json, print_json
from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import length
from ropewalk.folders import require_writable, write_whole
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer

if TYPE_CHECKING:
    from ropewalk.measure.lm_eval.harness import HarnessResult

Tasks = Annotated[
    str, typer.Option(metavar="NAMES", help="such as ruler_vt,babilong_longctx; lm-eval ls tasks lists them")
]
To = Annotated[
    str, typer.Option(metavar="LENGTH", help="the longest request, such as 32k; by default the trained length")
]
Lengths = Annotated[
    str, typer.Option(metavar="LENGTHS", help="lengths of generated texts, as in RULER; by default --to")
]
Limit = Annotated[int, typer.Option(min=0, help="samples for each task and length; 0: all")]
Include = Annotated[list[str] | None, typer.Option(metavar="FOLDER", help="a folder with further tasks, as YAML")]
Batch = Annotated[int, typer.Option(min=1, help="requests read at once")]
Answer = Annotated[
    int,
    typer.Option(min=0, help="tokens that a model writes at most; 0: as many as the task says (graphwalks: 16,384)"),
]
Fitting = Annotated[bool, typer.Option("--fitting", help="leave out samples that are longer than --to, and count them")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where results.json is written")]


def eval(
    model: Model,
    extension: Extension,
    tasks: Tasks = "",
    to: To = "",
    lengths: Lengths = "",
    limit: Limit = 0,
    include_path: Include = None,
    batch: Batch = 1,
    answer: Answer = 0,
    fitting: Fitting = False,
    out: Out = "ropewalk-eval",
    as_json: AsJson = False,
    *,
    options: LoadOptions,
) -> None:
    """Run tasks of lm-evaluation-harness. A request that does not fit is refused or left out, never cut."""
    require_plausible(model, extension)
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    if not names:
        raise InvalidValue("--tasks", "names of tasks", tasks, remedy="lm-eval ls tasks lists them")
    target_len = target(to)
    require_writable(Path(out))
    all_lengths = [length(text, "--lengths") for text in lengths.split(",")] if lengths else []
    settings = {
        "lengths": all_lengths,
        "limit": limit or None,
        "include": include_path or [],
        "batch": batch,
        "answer": answer or None,
        "fitting": fitting,
    }
    with only_json(as_json):
        result, origin = _evaluate(model, options, extension, names, target_len, settings)
        write_whole(Path(out) / "results.json", json.dumps(origin | result.to_json(), indent=1) + "\n")
    if as_json:
        print_json({"folder": out, **origin, **result.to_json()})
        return
    Console(markup=False).print(_table(result, extension))
    print(f"\nAll results: {Path(out) / 'results.json'}")


def _evaluate(
    model: str, options: LoadOptions, line: str, names: list[str], target_len: int | None, settings: dict[str, Any]
) -> tuple[HarnessResult, dict[str, Any]]:
    """The result, and where it comes from."""
    from ropewalk.hf.attach.trained_extension import take_off
    from ropewalk.hf.probe.facts import parse_for_config, trained_len
    from ropewalk.measure.lm_eval.harness import evaluate

    tokenizer = load_tokenizer(model, options)
    loaded = load_and_place(model, options, small_in_float32=True)
    text = loaded.config.get_text_config()
    known = trained_len(loaded)
    longest = target_len or known
    if max(settings["lengths"], default=0) > longest:
        raise InvalidValue("--lengths", f"at most --to ({longest})", max(settings["lengths"]))
    beyond = longest if longest > known else None
    extension = parse_for_config(text, line, beyond, trained_len=options.trained_len)
    trained_under = take_off(loaded)
    result = evaluate(loaded, tokenizer, extension, names, longest=longest, own=trained_under, **settings)
    origin = {
        "command": command(),
        "line": line,
        "extension": trained_under.with_line(extension).to_json(),
    }
    return result, origin


def _table(result: HarnessResult, line: str) -> Table:
    title = f"{line}, at most {result.longest:,} tokens"
    drawn = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name in ("task", "metric", "value", "+-", "samples", "left out", "longest request"):
        drawn.add_column(name, justify="left" if name in ("task", "metric") else "right", overflow="fold")
    for score in result.scores:
        error = "" if score.error is None else f"{score.error:.4f}"
        task = result.tasks.get(score.task, {})
        longest, left_out = task.get("longest_request"), str(task.get("left_out", ""))
        numbers = (f"{score.value:.4f}", error, str(score.samples), left_out, f"{longest:,}" if longest else "")
        drawn.add_row(score.task, score.metric, *numbers)
    return drawn
