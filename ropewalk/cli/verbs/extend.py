"""`ropewalk extend`: a model with an extension, written to a folder that says how it is loaded."""

from __future__ import annotations

from pathlib import Path

import typer

from ropewalk.cli.models import Extension, Model, Out, To, fitting, require_plausible, target, tokenizer_of, weights_of
from ropewalk.folders import require_new


def extend(model: Model, extension: Extension, out: Out, to: To = "") -> None:
    """Write the extended model: in a standard config where that has the words, beside the weights where not."""
    wanted = target(to)
    require_new(Path(out))
    line = require_plausible(model, extension)
    asked, tokenizer = fitting(model, line or extension, to), tokenizer_of(model)
    from ropewalk.hf import save
    from ropewalk.hf.attach.trained_extension import taken_off

    host = weights_of(model)
    handle = taken_off(host).put_on(host, asked, target_len=wanted)
    how = save(host, out, target_len=wanted, tokenizer=tokenizer)
    typer.echo(handle.describe())
    typer.echo(f"\nwritten to {out} and verified; load it with {how}")
