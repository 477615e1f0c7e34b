"""The `ropewalk` command: its verbs, and errors as one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from ropewalk.cli.compare import compare
from ropewalk.cli.diagnose import diagnose
from ropewalk.cli.eval import eval
from ropewalk.cli.export import export
from ropewalk.cli.extend import extend
from ropewalk.cli.fit import fit
from ropewalk.cli.generate import generate
from ropewalk.cli.inspect import inspect
from ropewalk.cli.show import show
from ropewalk.cli.showing import STOPPED
from ropewalk.cli.stream import stream
from ropewalk.cli.train import train
from ropewalk.errors import RopewalkError, is_out_of_memory, not_installed

REFUSED = 2
MISUSE: type[Exception] = typer.BadParameter.__mro__[2]  # all of the parser's own errors
EXAMPLES: dict[Callable[..., None], str] = {
    compare: "ropewalk compare ./model yarn rerope+log_n --lengths 4k,16k,32k",
    diagnose: "ropewalk diagnose ./model rerope+log_n --length 16k -o ./inside",
    eval: "ropewalk eval ./model yarn --to 32k --tasks niah_single_1,ruler_fwe --lengths 4k,16k",
    fit: "ropewalk fit ./model --to 32k --budget 30m --deployable vllm",
    show: "ropewalk show yarn:factor=8",
    inspect: "ropewalk inspect ./model --to 32k",
    extend: "ropewalk extend ./model yarn --to 32k -o ./model-32k",
    export: "ropewalk export ./model yarn --to 32k --target vllm -o ./served",
    generate: "ropewalk generate ./model rerope+log_n --prompt-file book.txt",
    stream: "ropewalk stream ./model streaming --tokens 1m",
    train: "ropewalk train pretrain --out ./model --set steps=1000",
}

app = typer.Typer(
    help="Train short, run long: methods of length extrapolation for language models.",
    no_args_is_help=True,
    add_completion=False,
)
for verb, example in EXAMPLES.items():
    app.command(epilog=f"Example: {example}")(verb)


def main() -> None:
    """The command."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and give its exit status; what is refused is said in one line."""
    try:
        status = app(arguments, prog_name="ropewalk", standalone_mode=False)
    except RopewalkError as refused:
        return _refused(str(refused))
    except MISUSE as wrong:
        said = wrong.format_message()  # type: ignore[attr-defined]
        return _refused(_misuse(wrong, said)) if said else REFUSED  # called with nothing it has shown its help
    except ModuleNotFoundError as missing:
        return _refused(str(not_installed(missing)))
    except (OSError, UnicodeDecodeError) as unreadable:
        return _refused(str(unreadable))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return _refused("memory must be enough for the model and its cache; a reach that forgets needs less")
    if status == STOPPED:
        print("ropewalk: stopped", file=sys.stderr)
    return int(status or 0)


def _misuse(wrong: Any, said: str) -> str:
    """What the parser says, and where to look."""
    context = getattr(wrong, "ctx", None)
    path = context.command_path if context else "ropewalk"
    return f"{said.rstrip('.')}; {path} --help says what there is"


def _refused(why: str) -> int:
    print(f"ropewalk: {' '.join(why.split())}", file=sys.stderr)
    return REFUSED
