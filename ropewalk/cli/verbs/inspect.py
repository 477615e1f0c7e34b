"""`ropewalk inspect`: what a model is, and what a longer text needs."""

from __future__ import annotations

import typer

from ropewalk.cli.models import Model, To, load_model, target
from ropewalk.cli.output import AsJson, print_json
from ropewalk.hf.load_options import AUTO, LoadOptions, require_plausible
from ropewalk.hf.loading import silence_transformers


def inspect(model: Model, to: To = "", as_json: AsJson = False, *, options: LoadOptions) -> None:
    """Print a model's trained length, rotations per pair, cache size, and which methods apply to it or why not.

    A config.json is enough. Without --to the target length is eight times the trained length.
    """
    target_len = target(to)
    require_plausible(model, config_is_enough=True)
    from ropewalk.hf.use.inspect import inspect as look

    if (options.dtype, options.device) == (AUTO, ""):  # a config is enough
        silence_transformers()
        report = look(model, target_len=target_len, options=options)
    else:
        report = look(load_model(model, options), target_len=target_len)
    print_json(report.to_json()) if as_json else typer.echo(str(report))
