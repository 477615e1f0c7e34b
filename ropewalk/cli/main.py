"""The `ropewalk` command: its verbs, and errors as one line."""

from __future__ import annotations

import sys

import typer

from ropewalk.cli.export import export
from ropewalk.cli.extend import extend
from ropewalk.cli.generate import generate
from ropewalk.cli.inspect import inspect
from ropewalk.cli.show import show
from ropewalk.errors import RopewalkError

app = typer.Typer(
    help="Train short, run long: methods of length extrapolation for language models.", no_args_is_help=True
)
for verb in (show, inspect, extend, export, generate):
    app.command()(verb)


def main() -> None:
    """Run a verb; what is refused is said in one line."""
    try:
        app()
    except RopewalkError as refused:
        _end(str(refused))
    except (OSError, UnicodeDecodeError) as unreadable:
        _end(str(unreadable))
    except ModuleNotFoundError as missing:
        _end(f"this verb needs {missing.name}; pip install 'ropewalk[hf]'")


def _end(why: str) -> None:
    print(f"ropewalk: {why}", file=sys.stderr)
    sys.exit(2)
