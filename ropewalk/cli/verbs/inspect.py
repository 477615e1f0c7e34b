"""`ropewalk inspect`: what a model brings, and what is unfamiliar at a longer length."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ropewalk.cli.models import Model, To, require_plausible, target, weights_of

AsJson = Annotated[bool, typer.Option("--json", help="for machines: every pair, every method")]


def inspect(model: Model, to: To = "", as_json: AsJson = False) -> None:
    """Trained length, turns of its pairs, its cache at the length to reach, the methods that apply and why others not.

    Without --to the length to reach is eight times the trained one.
    """
    wanted = target(to)
    require_plausible(model)
    from ropewalk.hf import inspect as look

    seen = look(weights_of(model), target_len=wanted)
    typer.echo(json.dumps(seen.to_json(), indent=2) if as_json else str(seen))
