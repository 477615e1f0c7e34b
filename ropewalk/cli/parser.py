"""The verbs with their examples, and the parser that reads them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Annotated

import typer

from ropewalk.cli.as_command import as_command
from ropewalk.cli.models import of_models
from ropewalk.cli.verbs.check import check
from ropewalk.cli.verbs.compare import compare
from ropewalk.cli.verbs.diagnose import diagnose
from ropewalk.cli.verbs.eval import eval
from ropewalk.cli.verbs.export import export
from ropewalk.cli.verbs.extend import extend
from ropewalk.cli.verbs.fit import fit
from ropewalk.cli.verbs.generate import generate
from ropewalk.cli.verbs.inspect import inspect
from ropewalk.cli.verbs.page import page
from ropewalk.cli.verbs.serving.serve import serve
from ropewalk.cli.verbs.show import show
from ropewalk.cli.verbs.stream import stream
from ropewalk.cli.verbs.train import train

MISUSE: type[Exception] = typer.BadParameter.__mro__[2]  # the base class of the parser's errors
EXAMPLES: dict[Callable[..., None], str] = {
    compare: "ropewalk compare ./model yarn rerope+log_n --lengths 4k,16k,32k",
    diagnose: "ropewalk diagnose ./model rerope+log_n --length 16k -o ./inside",
    eval: "ropewalk eval ./model yarn --to 32k --tasks niah_single_1,ruler_fwe --lengths 4k,16k",
    fit: "ropewalk fit ./model --to 32k --budget 30m --deployable vllm",
    show: "ropewalk show yarn:factor=8",
    page: "ropewalk page ./model yarn rerope+log_n --to 32k -o page.html",
    inspect: "ropewalk inspect ./model --to 32k",
    extend: "ropewalk extend ./model yarn --to 32k -o ./model-32k",
    export: "ropewalk export ./model yarn --to 32k --target vllm -o ./served",
    check: "ropewalk check ./model --engine vllm@0.32 --to 128k",
    generate: "ropewalk generate ./model rerope+log_n --prompt-file book.txt",
    stream: "ropewalk stream ./model streaming --tokens 1m",
    serve: "ropewalk serve ./model rerope+log_n --extensions yarn,streaming --to 32k",
    train: "ropewalk train pretrain --out ./model --set steps=1000",
}
OF_NO_MODEL = (show, page)
PLACED_OTHERWISE = (check, train)  # check reads no weights; train has --set bf16=true, and the devices of accelerate

app = typer.Typer(no_args_is_help=True)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ropewalk {metadata.version('ropewalk')}")
        raise typer.Exit


@app.callback()
def command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """Train short, run long: methods of length extrapolation for language models."""


def _with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb with the options of its kind."""
    return verb if verb in OF_NO_MODEL else of_models(verb, places_weights=verb not in PLACED_OTHERWISE)


for verb, example in EXAMPLES.items():
    app.command(epilog=f"Example: {example}")(as_command(_with_options(verb)))
