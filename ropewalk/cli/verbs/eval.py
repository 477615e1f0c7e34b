"""`ropewalk eval`: tasks of lm-evaluation-harness on an extended model; a table, and everything as JSON."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ropewalk.cli.models import (
    Device,
    Extension,
    Model,
    placed,
    require_plausible,
    target,
    tokenizer_of,
    weights_of,
)
from ropewalk.errors import InvalidValue
from ropewalk.folders import require_writable, write_whole
from ropewalk.notation import length

Tasks = Annotated[str, typer.Option(metavar="NAMES", help="such as ruler_vt,arc_easy; lm-eval ls tasks says more")]
To = Annotated[
    str, typer.Option(metavar="LENGTH", help="what no request exceeds, such as 32k; the trained length if none")
]
Lengths = Annotated[
    str, typer.Option(metavar="LENGTHS", help="of texts that tasks make themselves, as RULER; --to if none")
]
Limit = Annotated[int, typer.Option(min=0, help="samples of each task, and of each length; 0 for all")]
Include = Annotated[list[str] | None, typer.Option(metavar="FOLDER", help="tasks of your own, as YAML")]
Batch = Annotated[int, typer.Option(min=1, help="requests read at once")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="where results.json goes")]


def eval(
    model: Model,
    extension: Extension,
    tasks: Tasks = "",
    to: To = "",
    lengths: Lengths = "",
    limit: Limit = 0,
    include_path: Include = None,
    batch: Batch = 1,
    out: Out = "ropewalk-eval",
    device: Device = "",
) -> None:
    """Run tasks of lm-evaluation-harness. A request that does not fit is refused, never cut."""
    require_plausible(model, extension)
    names = [each.strip() for each in tasks.split(",") if each.strip()]
    if not names:
        raise InvalidValue("--tasks", "names of tasks", tasks)
    wanted = target(to)
    require_writable(Path(out))
    asked = [length(each, "--lengths") for each in lengths.split(",")] if lengths else []
    given = {"lengths": asked, "limit": limit or None, "include": include_path or [], "batch": batch}
    _eval(model, extension, names, wanted, given, Path(out), device)


def _eval(
    model: str, line: str, names: list[str], wanted: int | None, given: dict[str, Any], out: Path, device: str
) -> None:
    from ropewalk.evaluation.lm_eval.harness import evaluate
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.probe.checkpoint_schedule import parsed_for
    from ropewalk.hf.probe.facts import trained_len

    tokenizer = tokenizer_of(model)
    loaded = placed(weights_of(model), device)
    text = loaded.config.get_text_config()
    known = trained_len(text)
    longest = wanted or known
    if max(given["lengths"], default=0) > longest:
        raise InvalidValue("--lengths", f"at most --to ({longest})", max(given["lengths"]))
    beyond = longest if longest > known else None
    extension = parsed_for(text, line, beyond)
    own = taken_off(loaded)
    found = evaluate(loaded, tokenizer, extension, names, longest=longest, own=own, **given)
    said = {
        "command": shlex.join(["ropewalk", *sys.argv[1:]]),
        "line": line,
        "extension": own.with_line(extension).to_json(),
    }
    write_whole(out / "results.json", json.dumps(said | found.to_json(), indent=1) + "\n")
    Console().print(_table(found, line))
    print(f"\nEverything: {out / 'results.json'}")


def _table(found: Any, line: str) -> Table:
    title = f"{line}, at most {found.longest:,} tokens"
    drawn = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name in ("task", "metric", "value", "+-", "samples", "longest"):
        drawn.add_column(name, justify="left" if name in ("task", "metric") else "right", overflow="fold")
    for each in found.scores:
        error = "" if each.error is None else f"{each.error:.4f}"
        longest = found.tasks.get(each.task, {}).get("longest_request")
        shown = (f"{each.value:.4f}", error, str(each.samples), f"{longest:,}" if longest else "")
        drawn.add_row(each.task, each.metric, *shown)
    return drawn
