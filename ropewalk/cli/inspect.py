"""`ropewalk inspect`: what a model brings, and what is unfamiliar at a longer length."""

from __future__ import annotations

import typer

from ropewalk.cli.models import Model, To, loaded, target


def inspect(model: Model, to: To = "") -> None:
    """Trained length, turns of its pairs, its cache at the length to reach, the methods that apply."""
    from ropewalk.hf import inspect as look

    typer.echo(str(look(loaded(model), target_len=target(to))))
