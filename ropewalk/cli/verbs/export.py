"""`ropewalk export`: write a model with an extension for an engine or a trainer, with the command or the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli import completion
from ropewalk.cli.models import (
    Extension,
    Model,
    RequestFactors,
    To,
    folder_for,
    load_model,
    parse_for_model,
    refuse_gguf,
    request_factors as read_factors,
    require_plausible,
    target,
)
from ropewalk.cli.output import AsJson, print_json
from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.folders import require_new, require_new_file
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer
from ropewalk.measure.progress import showing_progress
from ropewalk.models import GGUF

ENGINES = ("transformers", "vllm", "sglang", "llama.cpp", "mlx")
TRAINERS = ("llama-factory", "axolotl", "torchtitan")
WITHOUT_FOLDER = ("axolotl", "torchtitan")
TARGETS = (
    "transformers, vllm, sglang, llama.cpp or mlx; or a trainer: llama-factory, axolotl or torchtitan; by default "
    "vllm, and llama.cpp for a GGUF file, which becomes another one"
)
Target = Annotated[
    str,
    typer.Option("--target", metavar="ENGINE", autocompletion=completion.one_of((*ENGINES, *TRAINERS)), help=TARGETS),
]
FOLDER = (
    "a new folder, or of a GGUF file a new GGUF file; by default one with a name such as model-yarn-32k-vllm; axolotl "
    "and torchtitan need none"
)
Folder = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help=FOLDER)]
Force = Annotated[bool, typer.Option("--force", help="overwrite a GGUF file that is there")]

Plugin = Annotated[
    bool | None,
    typer.Option("--plugin/--no-plugin", help="vllm: always or never with Ropewalk's plugin; by default where needed"),
]


CONFIG_ONLY = "serve the model's own weights: print what changes in its config, or write a config.json with -o"
ConfigOnly = Annotated[bool, typer.Option("--config-only", help=CONFIG_ONLY)]


def export(
    model: Model,
    extension: Extension,
    out: Folder = "",
    engine: Target = "",
    to: To = "",
    plugin: Plugin = None,
    request_factors: RequestFactors = None,
    config_only: ConfigOnly = False,
    force: Force = False,
    as_json: AsJson = False,
    *,
    options: LoadOptions,
) -> None:
    """Write the model so that an engine or a trainer runs it under the extension, or say why it cannot."""
    target_len, factors = target(to), read_factors(request_factors)
    of_file = model.endswith(GGUF) and engine in ("", "llama.cpp")
    engine = engine or ("llama.cpp" if of_file else "vllm")
    if engine not in (*ENGINES, *TRAINERS):
        raise UnknownName("engine", engine, known=(*ENGINES, *TRAINERS))
    if not out and engine not in WITHOUT_FOLDER and not config_only:
        out = folder_for(model, extension, to, "" if of_file else engine) + (GGUF if of_file else "")
    if force and not of_file:
        raise InvalidValue.because("--force", "--force overwrites a GGUF file alone", remedy="leave it out")
    if of_file:
        require_new_file(Path(out), GGUF, force)
    elif out:
        require_new(Path(out))
    line = require_plausible(model, extension)
    if out and not of_file and not config_only:
        refuse_gguf(model, extension, to)
    fitted = parse_for_model(model, line or extension, to, options)
    asked: dict[str, Any] = {"target": engine, "target_len": target_len, "plugin": plugin, "request_factors": factors}
    if config_only:
        from ropewalk.engines.config_only import export_config

        place = Path(out) if out else None
        return _say(export_config(model, fitted, place, options=options, **asked), as_json)
    from ropewalk.engines.config_only import require_exportable
    from ropewalk.engines.export import export as write, require_directory
    from ropewalk.hf.attach.trained_extension import take_off
    from ropewalk.hf.checkpoint.own_files import require_own_files

    require_directory(out or None, engine, "--out")
    if of_file:
        more: dict[str, Any] = {"extension": fitted, "options": options}
        source: Any = model
    else:
        require_own_files(model if out else None)
        require_exportable(model, fitted, options, **asked)
        tokenizer, source = load_tokenizer(model, options) if out else None, load_model(model, options)
        take_off(source).put_on(source, fitted, target_len=target_len)
        more = {"tokenizer": tokenizer}
    with showing_progress(f"writing {out}" if out else f"planning for {engine}", shown="lines"):
        written = write(source, out or None, force=force, **asked, **more)
    _say(written, as_json)


def _say(result: Any, as_json: bool) -> None:
    if as_json:
        place = None if result.directory is None else str(result.directory)
        print_json({"kind": result.kind, "folder": place, "command": result.command, "notes": result.notes})
        return
    typer.echo(str(result))
