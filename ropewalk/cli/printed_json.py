"""What every verb that reports shares: `--json`, and the command line that a report names."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


def print_json(value: Any) -> None:
    """The only thing on the output stream; NaN and infinity, which JSON does not have, are refused."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def command() -> str:
    """The command line as it was typed."""
    return shlex.join(["ropewalk", *sys.argv[1:]])
