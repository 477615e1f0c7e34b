"""`ropewalk extend`: write a model with an extension to a folder."""

from __future__ import annotations

from pathlib import Path

import typer

from ropewalk.cli.models import (
    Extension,
    Model,
    Out,
    To,
    folder_for,
    load_model,
    parse_for_model,
    refuse_gguf,
    require_plausible,
    target,
)
from ropewalk.cli.output import AsJson, print_json
from ropewalk.folders import require_new
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer
from ropewalk.measure.progress import showing_progress


def extend(
    model: Model,
    extension: Extension,
    out: Out = "",
    to: To = "",
    as_json: AsJson = False,
    *,
    options: LoadOptions,
) -> None:
    """Write the extended model: in a standard config where that can express it, else in ropewalk.json beside it."""
    target_len, out = target(to), out or folder_for(model, extension, to)
    require_new(Path(out))
    line = require_plausible(model, extension)
    refuse_gguf(model, extension, to)
    fitted = parse_for_model(model, line or extension, to, options)
    from ropewalk.hf.attach.trained_extension import take_off
    from ropewalk.hf.checkpoint.own_files import require_own_files
    from ropewalk.hf.use.save import save

    require_own_files(model)
    tokenizer = load_tokenizer(model, options)
    host = load_model(model, options)
    handle = take_off(host).put_on(host, fitted, target_len=target_len)
    with showing_progress(f"writing and verifying {out}", shown="lines"):
        how = save(host, out, target_len=target_len, tokenizer=tokenizer)
    description = handle.describe()
    loader, _, reason = how.partition(": ")
    if as_json:
        print_json({"folder": out, "extension": handle.extension.to_json(), "load": loader, "why": reason})
        return
    typer.echo(description)
    typer.echo(f"\nwritten to {out} and verified; load it with {loader if reason in description else how}")
