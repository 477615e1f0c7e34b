"""`ropewalk export`: write a model with an extension for an engine, with the command that starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.models import Extension, Model, Out, To, fitting, require_plausible, target, tokenizer_of, weights_of
from ropewalk.errors import UnknownName
from ropewalk.folders import require_new

ENGINES = ("transformers", "vllm", "sglang", "llama.cpp")
Target = Annotated[str, typer.Option("--target", metavar="ENGINE", help="transformers, vllm, sglang or llama.cpp")]

Plugin = Annotated[
    bool | None,
    typer.Option("--plugin/--no-plugin", help="vllm: by Ropewalk's plugin always, or never; if needed without either"),
]


def export(
    model: Model, extension: Extension, out: Out, engine: Target = "vllm", to: To = "", plugin: Plugin = None
) -> None:
    """Write the model so that the engine runs it under the extension, or say why the engine cannot."""
    target_len = target(to)
    if engine not in ENGINES:
        raise UnknownName("engine", engine, known=ENGINES)
    require_new(Path(out))
    line = require_plausible(model, extension)
    fitted, tokenizer = fitting(model, line or extension, to), tokenizer_of(model)
    from ropewalk.hf import export as write
    from ropewalk.hf.attach.trained_extension import taken_off

    host = weights_of(model)
    taken_off(host).put_on(host, fitted, target_len=target_len)
    result = write(host, out, target=engine, target_len=target_len, tokenizer=tokenizer, plugin=plugin)
    typer.echo(str(result))
