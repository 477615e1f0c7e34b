"""`ropewalk export`: write a model with an extension for an engine or a trainer, with the command or the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli import completion
from ropewalk.cli.models import (
    Extension,
    Model,
    To,
    folder_for,
    load_model,
    parse_for_model,
    require_plausible,
    target,
)
from ropewalk.cli.output import AsJson, print_json
from ropewalk.errors import UnknownName
from ropewalk.folders import require_new
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer

ENGINES = ("transformers", "vllm", "sglang", "llama.cpp", "mlx")
TRAINERS = ("llama-factory", "axolotl", "torchtitan")
WITHOUT_FOLDER = ("axolotl", "torchtitan")
TARGETS = "transformers, vllm, sglang, llama.cpp or mlx; or a trainer: llama-factory, axolotl or torchtitan"
Target = Annotated[
    str,
    typer.Option("--target", metavar="ENGINE", autocompletion=completion.one_of((*ENGINES, *TRAINERS)), help=TARGETS),
]
FOLDER = "a new folder; by default one with a name such as model-yarn-32k-vllm; axolotl and torchtitan need none"
Folder = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help=FOLDER)]

Plugin = Annotated[
    bool | None,
    typer.Option("--plugin/--no-plugin", help="vllm: always or never with Ropewalk's plugin; by default where needed"),
]


def export(
    model: Model,
    extension: Extension,
    out: Folder = "",
    engine: Target = "vllm",
    to: To = "",
    plugin: Plugin = None,
    as_json: AsJson = False,
    *,
    options: LoadOptions,
) -> None:
    """Write the model so that an engine or a trainer runs it under the extension, or say why it cannot."""
    target_len = target(to)
    if engine not in (*ENGINES, *TRAINERS):
        raise UnknownName("engine", engine, known=(*ENGINES, *TRAINERS))
    if not out and engine not in WITHOUT_FOLDER:
        out = folder_for(model, extension, to, engine)
    if out:
        require_new(Path(out))
    line = require_plausible(model, extension)
    fitted = parse_for_model(model, line or extension, to, options)
    from ropewalk.engines.export import export as write, require_directory
    from ropewalk.hf.attach.trained_extension import take_off
    from ropewalk.hf.checkpoint.own_files import require_own_files

    require_directory(out or None, engine, "--out")
    require_own_files(model if out else None)
    tokenizer, host = load_tokenizer(model, options) if out else None, load_model(model, options)
    take_off(host).put_on(host, fitted, target_len=target_len)
    result = write(host, out or None, target=engine, target_len=target_len, tokenizer=tokenizer, plugin=plugin)
    if as_json:
        place = None if result.directory is None else str(result.directory)
        print_json({"kind": result.kind, "folder": place, "command": result.command, "notes": result.notes})
        return
    typer.echo(str(result))
