"""The verbs with their examples, the parser that reads them, and their errors, which name options as they are typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from importlib import metadata
from inspect import signature
from typing import Annotated, Any

import typer

from ropewalk.cli.models import with_load_options
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
from ropewalk.cli.verbs.serve import serve
from ropewalk.cli.verbs.show import show
from ropewalk.cli.verbs.stream import stream
from ropewalk.cli.verbs.train import train
from ropewalk.errors import RopewalkError, Unreadable
from ropewalk.extension.notation import length

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
OF_NO_MODEL = (show,)
# check reads weights with --running alone; train has --set bf16=true, and the devices of accelerate.
PLACED_OTHERWISE = (check, train)
ALIASES = {"target_len": "to", "folder": "out", "directory": "out"}  # fields of the library, and their options

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
    return verb if verb in OF_NO_MODEL else with_load_options(verb, places_weights=verb not in PLACED_OTHERWISE)


def as_command(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, whose errors name options as they are typed."""
    options = options_of(verb)

    @wraps(verb)
    def running(**kwargs: Any) -> None:
        try:
            verb(**kwargs)
        except RopewalkError as refused:
            refused.args = (as_typed(refused, options, kwargs),)
            raise

    return running


def options_of(verb: Callable[..., None]) -> dict[str, str]:
    """The options of a verb as they are typed, by the names of its parameters."""
    options = {}
    for name, parameter in signature(verb, eval_str=True).parameters.items():
        for note in getattr(parameter.annotation, "__metadata__", ()):
            if type(note).__name__ == "OptionInfo":
                declared = (note.default, *(note.param_decls or ()))  # beside Annotated the first name is the default
                named = [text for text in declared if isinstance(text, str) and text.startswith("--")]
                options[name] = named[0].partition("/")[0] if named else f"--{name.replace('_', '-')}"
    return options


def as_typed(refused: RopewalkError, options: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """The message; a field that is an option is named like it, if the wrong value is the option's and no other's."""
    message, field = str(refused), refused.field
    name = field if field in options else ALIASES.get(field, "")
    about_it = any(f"got {written}" in message for written in _written(values.get(name)))
    about_what, colon, sentence = _parted(message, field)
    if name in options and sentence.startswith(f"{field} ") and about_it:
        return f"{about_what}{colon}{options[name]}{sentence.removeprefix(field)}"
    return message


def _parted(message: str, field: str) -> tuple[str, str, str]:
    """The task or the file that a message begins with, if any, and its sentence."""
    before, colon, after = message.partition(f": {field} must ")
    return (before, ": ", f"{field} must {after}") if colon else ("", "", message)


def _written(value: Any) -> Iterator[str]:
    """How a message may write the value of an option."""
    yield from (repr(value), repr(str(value)))
    for part in str(value).split(","):
        with suppress(Unreadable):
            yield str(length(part))


for verb, example in EXAMPLES.items():
    app.command(epilog=f"Example: {example}")(as_command(_with_options(verb)))
