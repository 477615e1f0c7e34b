"""All recipes by name: what `ropewalk train` runs and lists. A new one is a line in `HOMES`.

A recipe is imported when it is asked for, which takes seconds; its idea is read from its file.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.errors import UnknownName
from ropewalk.methods.docstrings import idea_of

if TYPE_CHECKING:
    from ropewalk.train.recipes.recipe import Recipe

HOMES = {
    "pretrain": "pretrain",
    "carry_on": "carry_on",
    "drope": "drope",
    "uptrain_gqa": "uptrain_gqa",
    "long_instruct": "long_instruct",
}


def ideas() -> dict[str, str]:
    """What each recipe does, by its name."""
    folder = Path(__file__).parent
    return {name: idea_of((folder / home.replace(".", "/")).with_suffix(".py"), name) for name, home in HOMES.items()}


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in HOMES:
        raise UnknownName("recipe", name, known=HOMES)
    from ropewalk.train.recipes.recipe import Recipe

    return Recipe.of(getattr(import_module(f"ropewalk.train.recipes.{HOMES[name]}"), name))


def recipes() -> dict[str, Recipe]:
    """Every recipe, by name."""
    return {name: recipe(name) for name in HOMES}
