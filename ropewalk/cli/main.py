"""The `ropewalk` command: its verbs, and errors as one line."""

from __future__ import annotations

import sys

import typer

from ropewalk.cli.show import show
from ropewalk.errors import RopewalkError

app = typer.Typer(
    help="Train short, run long: methods of length extrapolation for language models.", no_args_is_help=True
)
app.command()(show)


@app.callback()
def verbs() -> None:
    """Keeps the verb's name in the command while there is only one."""


def main() -> None:
    """Run a verb; what is refused is said in one line."""
    try:
        app()
    except RopewalkError as refused:
        print(f"ropewalk: {refused}", file=sys.stderr)
        sys.exit(2)
