"""All recipes by name: what `ropewalk train` runs and lists. A new one is a file of its name and a line in `RECIPES`.

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

RECIPES = (
    "pretrain",
    "carry_on",
    "drope",
    "uptrain_gqa",
    "long_instruct",
    "retrieval_heads",
)


def ideas() -> dict[str, str]:
    """What each recipe does, by its name."""
    return {name: idea_of(Path(__file__).with_name(f"{name}.py"), name) for name in RECIPES}


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise UnknownName("recipe", name, known=RECIPES)
    from ropewalk.train.recipes.recipe import Recipe

    return Recipe.of(getattr(import_module(f"ropewalk.train.recipes.{name}"), name))


def recipes() -> dict[str, Recipe]:
    """Every recipe, by name."""
    return {name: recipe(name) for name in RECIPES}
