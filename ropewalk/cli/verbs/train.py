"""`ropewalk train`: recipes, each resumable by the command that began it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ropewalk.cli.exit_status import STOPPED
from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.folders import require_writable

if TYPE_CHECKING:
    from ropewalk.lab.recipes.listing import Recipe  # importing it takes seconds


def train(
    recipe: Annotated[str, typer.Argument(help="such as pretrain; --list shows all")] = "",
    out: Annotated[str, typer.Option("--out", "-o", help="a folder; what was begun there goes on")] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, as often as needed")] = None,
    listed: Annotated[bool, typer.Option("--list", help="show the recipes and their settings")] = False,
) -> None:
    """Train by a recipe; the same command again goes on where it was stopped."""
    from ropewalk.lab.recipes.listing import ALL, run
    from ropewalk.lab.recipes.listing import recipe as named
    from ropewalk.lab.training.stopping import as_interrupt

    if listed:
        _list([named(recipe)] if recipe else list(ALL))
        return
    chosen, given = named(recipe), _given(settings or [])
    if not out:
        raise InvalidValue("out", "given", out, remedy=f"say ropewalk train {chosen.name} --out FOLDER")
    require_writable(Path(out))
    with as_interrupt():
        place = run(chosen.name, out, given)
    if place is None:
        print("ropewalk: a signal came, what was trained is kept; the same command goes on", file=sys.stderr)
        raise typer.Exit(STOPPED)
    print(f"Trained: {place}")


def _given(settings: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise Unreadable("setting", "written key=value", setting)
        if name in found:
            raise Unreadable(f"setting {name}", "given once", setting)
        found[name] = value
    return found


def _list(recipes: list[Recipe]) -> None:
    console = Console(highlight=False)
    for each in recipes:
        title = f"{each.name}: {each.idea}"
        table = Table("setting", "default", "must be", "meaning", title=escape(title), title_justify="left")
        for row in each.rows():
            table.add_row(row.name, escape(row.default), escape(row.rule), escape(row.meaning))
        console.print(table)
