"""`ropewalk extend`: write a model with an extension to a folder."""

from __future__ import annotations

from pathlib import Path

import typer

from ropewalk.cli.models import (
    Extension,
    Model,
    Out,
    To,
    fitting,
    folder_for,
    require_plausible,
    target,
    tokenizer_of,
    weights_of,
)
from ropewalk.cli.printed_json import AsJson, print_json
from ropewalk.folders import require_new


def extend(model: Model, extension: Extension, out: Out = "", to: To = "", as_json: AsJson = False) -> None:
    """Write the extended model: in a standard config where that can express it, else in ropewalk.json beside it."""
    target_len, out = target(to), out or folder_for(model, extension, to)
    require_new(Path(out))
    line = require_plausible(model, extension)
    fitted = fitting(model, line or extension, to)
    from ropewalk.hf import save
    from ropewalk.hf.attach.trained_extension import taken_off
    from ropewalk.hf.checkpoint.own_files import require_own_files

    require_own_files(model)
    tokenizer = tokenizer_of(model)
    host = weights_of(model)
    handle = taken_off(host).put_on(host, fitted, target_len=target_len)
    how = save(host, out, target_len=target_len, tokenizer=tokenizer)
    description = handle.describe()
    loader, _, reason = how.partition(": ")
    if as_json:
        print_json({"folder": out, "extension": handle.extension.to_json(), "load": loader, "why": reason})
        return
    typer.echo(description)
    typer.echo(f"\nwritten to {out} and verified; load it with {loader if reason in description else how}")
