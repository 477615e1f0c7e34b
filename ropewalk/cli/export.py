"""`ropewalk export`: a model with an extension for an engine, and the command that starts it."""

from __future__ import annotations

from typing import Annotated

import typer

from ropewalk.cli.models import Extension, Model, Out, To, loaded, target

Target = Annotated[str, typer.Option(help="transformers, vllm, sglang or llama.cpp")]


def export(model: Model, extension: Extension, out: Out, target_engine: Target = "vllm", to: To = "") -> None:
    """Write the model so that the engine reads the schedule, or say why it cannot."""
    from ropewalk.hf import export as write
    from ropewalk.hf import extend as attach

    host, tokenizer = loaded(model, tokenizer=True)
    attach(host, extension, target_len=target(to))
    result = write(host, out, target=target_engine, target_len=target(to))
    tokenizer.save_pretrained(out)
    typer.echo(str(result))
