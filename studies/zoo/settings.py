"""Which models of the zoo are trained, how, and what they are measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.train.data.puzzles import PuzzleShares
from ropewalk.train.recipes.recipe import Characters, Corpus, RecipeSettings
from ropewalk.train.small_models import ModelShape
from ropewalk.train.train import WATCHING

from studies.zoo.methods import EVERY

# One model, 3 M tokens, takes six to nine minutes of one core: a small vocabulary, short rows and many repeats, so
# that a model as small as this learns to look back at all (studies/log.md).
SHAPE = ModelShape(vocabulary=320, width=96, inner=256, layers=6, trained_len=64)
PUZZLES = PuzzleShares(repeats=0.4, recall=0.1)  # what repeated text needs, in rows this short


@dataclass(frozen=True, kw_only=True)
class ZooSettings(RecipeSettings):
    """Which methods are trained, how often, and what they are measured on."""

    methods: Annotated[str, "names, separated by commas"] = EVERY
    seeds: Annotated[int, AT_LEAST_ONE, "models of each method"] = 3
    texts: Annotated[int, AT_LEAST_ONE, "held-out texts, each ten times the trained length"] = 128
    corpus: Corpus = "python"
    characters: Characters = 20_000_000
    shape: ModelShape = SHAPE
    puzzles: PuzzleShares = PUZZLES

    plan_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 3000,
        "rows": 16,
        "learning_rate": 3e-3,
        "save_every": 500,
        "log_every": 100,
    }
    changeable: ClassVar[tuple[str, ...]] = ("methods", "seeds", *WATCHING)
