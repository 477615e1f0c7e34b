"""`ropewalk extend`: a model with an extension, written to a folder that says how it is loaded."""

from __future__ import annotations

import typer

from ropewalk.cli.models import Extension, Model, Out, To, loaded, target


def extend(model: Model, extension: Extension, out: Out, to: To = "") -> None:
    """Write the extended model: in a standard config where that has the words, beside the weights where not."""
    from ropewalk.hf import extend as attach
    from ropewalk.hf import save

    host, tokenizer = loaded(model, tokenizer=True)
    handle = attach(host, extension, target_len=target(to))
    how = save(host, out, target_len=target(to))
    tokenizer.save_pretrained(out)
    typer.echo(handle.describe())
    typer.echo(f"\nwritten to {out} and verified; load it with {how}")
