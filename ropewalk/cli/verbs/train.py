"""`ropewalk train`: recipes, resumed by the command that began them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ropewalk.cli.exit_status import STOPPED
from ropewalk.cli.output import AsJson, only_json, print_json
from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.folders import require_writable
from ropewalk.hf.load_options import LoadOptions
from ropewalk.signals import as_interrupt
from ropewalk.train.recipes import listing

if TYPE_CHECKING:
    from ropewalk.train.recipes.recipe import Recipe  # importing it takes seconds


def train(
    recipe: Annotated[str, typer.Argument(help="name of a recipe, such as pretrain; --list shows all")] = "",
    out: Annotated[str, typer.Option("--out", "-o", help="output folder; a run that was begun there is resumed")] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value; repeat for several")] = None,
    listed: Annotated[bool, typer.Option("--list", help="show the recipes, or the settings of one")] = False,
    as_json: AsJson = False,
    *,
    options: LoadOptions,
) -> None:
    """Train a model by a recipe; the same command again resumes it where it stopped."""
    if listed:
        _list(recipe, as_json)
        return
    chosen, texts = listing.recipe(recipe), texts_of(settings or [])
    if not out:
        raise InvalidValue.because(
            "out", "train needs a folder", remedy=f"run ropewalk train {chosen.name} --out FOLDER"
        )
    require_writable(Path(out))
    from ropewalk.train.recipes.recipe import run

    with only_json(as_json), as_interrupt():
        result = run(chosen, out, texts, options)
    if result is None:
        print("ropewalk: stopped by a signal; progress is saved, the same command resumes", file=sys.stderr)
        raise typer.Exit(STOPPED)
    if as_json:
        print_json({"recipe": chosen.name, "folder": out, "model": str(result)})
        return
    print(f"Trained: {result}")


def _as_json(recipe: Recipe) -> dict[str, Any]:
    """A recipe in words."""
    return {"name": recipe.name, "idea": recipe.idea, "settings": [row._asdict() for row in recipe.rows()]}


def texts_of(settings: Sequence[str]) -> dict[str, str]:
    """The values of settings by name, as they were written."""
    texts: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise Unreadable("setting", "written key=value", setting)
        if name in texts:
            raise Unreadable.because(f"setting {name}", f"--set {name}=... is there twice", remedy="give it once")
        texts[name] = value
    return texts


def _list(name: str, as_json: bool) -> None:
    """One recipe with its settings, or what all recipes do; as JSON always with the settings."""
    if as_json:
        recipes = [listing.recipe(name)] if name else listing.recipes().values()
        print_json({"recipes": [_as_json(recipe) for recipe in recipes]})
        return
    console = Console(highlight=False)
    if not name:
        table = Table("recipe", "what it does")
        for title, idea in listing.ideas().items():
            table.add_row(title, escape(idea))
        console.print(table)
        console.print("The settings of one: ropewalk train RECIPE --list")
        return
    recipe = listing.recipe(name)
    title = f"{recipe.name}: {recipe.idea}"
    table = Table("setting", "default", "must be", "meaning", title=escape(title), title_justify="left")
    for row in recipe.rows():
        table.add_row(row.name, escape(row.default), escape(row.rule), escape(row.meaning))
    console.print(table)
