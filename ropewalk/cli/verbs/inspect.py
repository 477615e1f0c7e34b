"""`ropewalk inspect`: what a model is, and what a longer text needs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ropewalk.cli.models import Model, To, require_plausible, target, weights_of

AsJson = Annotated[bool, typer.Option("--json", help="print JSON, with every pair and every method")]


def inspect(model: Model, to: To = "", as_json: AsJson = False) -> None:
    """Print a model's trained length, rotations per pair, cache size, and which methods apply to it or why not.

    Without --to the target length is eight times the trained length.
    """
    target_len = target(to)
    require_plausible(model)
    from ropewalk.hf import inspect as look

    report = look(weights_of(model), target_len=target_len)
    typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))
