"""All recipes by name: what `ropewalk train` runs and lists. A new one is a line in `ALL`."""

from __future__ import annotations

from ropewalk.errors import UnknownName
from ropewalk.lab.recipes.carry_on import carry_on
from ropewalk.lab.recipes.drope import drope
from ropewalk.lab.recipes.long_instruct import long_instruct
from ropewalk.lab.recipes.pretrain import pretrain
from ropewalk.lab.recipes.recipe import Recipe
from ropewalk.lab.recipes.tuned.tuned import tuned
from ropewalk.lab.recipes.uptrain_gqa import uptrain_gqa
from ropewalk.lab.recipes.zoo.zoo import zoo

ALL = (
    pretrain,
    carry_on,
    drope,
    uptrain_gqa,
    long_instruct,
    zoo,
    tuned,
)


def recipes() -> dict[str, Recipe]:
    """Every recipe, by name."""
    return {function.__name__: Recipe.of(function) for function in ALL}


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    known = recipes()
    if name not in known:
        raise UnknownName("recipe", name, known=known)
    return known[name]
