"""`ropewalk check`: what a serving engine will compute from a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli import completion
from ropewalk.cli.exit_status import NOT_THE_SAME
from ropewalk.cli.models import To, model_argument, target
from ropewalk.cli.output import AsJson, print_json
from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import silence_transformers

if TYPE_CHECKING:
    from ropewalk.engines.check.report import EngineCheck
    from ropewalk.engines.check.running import RunningCheck

Checkpoint = Annotated[
    str,
    model_argument(
        "a config.json, a folder with one, a GGUF file, a name on the hub, or default: the model in Ropewalk",
        metavar="CONFIG_OR_MODEL",
    ),
]
ENGINES = ("vllm", "sglang", "llama.cpp", "mlx", "ollama", "ollama-mlx", "lmdeploy", "exllamav3", "transformers")


def require_engine(value: str) -> str:
    """An engine whose name is known, whatever its version is: the rules of engines take torch."""
    if (name := value.partition("@")[0]) not in ENGINES:
        raise UnknownName("engine", name, known=ENGINES)
    return value


Engine = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        callback=require_engine,
        autocompletion=completion.one_of(ENGINES),
        help=f"{', '.join(ENGINES[:-1])} or {ENGINES[-1]}, with a version such as vllm@0.32",
    ),
]

Running = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="ask the engine that runs there whether it computes the schedule; this loads the weights"
    ),
]
Served = Annotated[str, typer.Option("--model", metavar="NAME", help="what the running engine calls the model")]


def check(
    model: Checkpoint,
    engine: Engine = "vllm",
    to: To = "",
    running: Running = None,
    served: Served = "",
    as_json: AsJson = False,
    *,
    options: LoadOptions,
) -> None:
    """Print what an engine will compute from a checkpoint, and how that differs from what its authors meant.

    Without --to the length is that of the config. Weights are loaded by --running alone. The exit status is 0 where it
    is the same, 1 where it differs, is refused or is not known, and 2 for wrong use.
    """
    target_len = target(to)
    if served and running is None:
        raise InvalidValue.because("--model", "--model is a name in a running engine", remedy="add --running URL")
    checked: EngineCheck | RunningCheck
    if running is not None:
        from ropewalk.engines.check.running import check_running

        silence_transformers()
        checked = check_running(running, model, served=served, target_len=target_len, options=options)
    else:
        from ropewalk.engines.check.check import check as look

        silence_transformers()
        checked = look(model, engine=engine, target_len=target_len, options=options)
    print_json(checked.to_json()) if as_json else typer.echo(str(checked))
    if not checked.is_same:
        raise typer.Exit(NOT_THE_SAME)
