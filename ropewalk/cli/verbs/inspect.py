"""`ropewalk inspect`: what a model is, and what a longer text needs."""

from __future__ import annotations

import typer

from ropewalk.cli.models import Model, To, require_plausible, target, weights_of
from ropewalk.cli.printed_json import AsJson, print_json


def inspect(model: Model, to: To = "", as_json: AsJson = False) -> None:
    """Print a model's trained length, rotations per pair, cache size, and which methods apply to it or why not.

    Without --to the target length is eight times the trained length.
    """
    target_len = target(to)
    require_plausible(model)
    from ropewalk.hf import inspect as look

    report = look(weights_of(model), target_len=target_len)
    print_json(report.to_json()) if as_json else typer.echo(str(report))
