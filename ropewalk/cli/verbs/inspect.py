"""`ropewalk inspect`: what a model is, and what a longer text needs."""

from __future__ import annotations

from functools import partial

import typer

from ropewalk import folders
from ropewalk.cli.models import Model, To, quietly, target, weights_of
from ropewalk.cli.printed_json import AsJson, print_json
from ropewalk.placement import UNSTATED, wanted_placement


def inspect(model: Model, to: To = "", as_json: AsJson = False) -> None:
    """Print a model's trained length, rotations per pair, cache size, and which methods apply to it or why not.

    A config.json is enough. Without --to the target length is eight times the trained length.
    """
    target_len = target(to)
    folders.require_plausible(model, config_is_enough=True)
    from ropewalk.hf import inspect as look

    if wanted_placement() != UNSTATED:
        report = look(weights_of(model), target_len=target_len)
    else:
        report = quietly(partial(look, target_len=target_len), model)
    print_json(report.to_json()) if as_json else typer.echo(str(report))
