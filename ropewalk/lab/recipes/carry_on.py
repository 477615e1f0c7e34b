"""`carry_on`: train a checkpoint on at a longer length, under PI, NTK, YaRN, ABF or any other extension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from transformers import PreTrainedModel

from ropewalk.hf import extend
from ropewalk.hf.probe.facts import trained_len
from ropewalk.lab.data.puzzles import NO_PUZZLES, PuzzleShares
from ropewalk.lab.recipes.building_blocks import GENTLE, checkpoint, train_and_save, training_rows
from ropewalk.lab.recipes.recipe import Characters, Corpus, Model, Rank, RecipeSettings
from ropewalk.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class CarryOnSettings(RecipeSettings):
    """Which checkpoint is trained on, under which extension, on what."""

    model: Model
    extension: Annotated[str, "such as pi, ntk, yarn or abf:new_base=500000; rope for none"]
    length: Annotated[int, AT_LEAST_ONE, "tokens of a row"]
    lora: Rank = 0
    corpus: Corpus = "python"
    characters: Characters = 60_000_000
    puzzles: PuzzleShares = NO_PUZZLES

    plan_defaults: ClassVar[Mapping[str, Any]] = GENTLE


def carry_on(out: str | Path, settings: CarryOnSettings) -> PreTrainedModel:
    """Train a checkpoint on under an extension, at a longer length ("pi", "yarn") or at its own ("rope", "alibi").

    All weights or, with `lora`, adapters of that rank, merged at the end. A static schedule is kept in a standard
    config.
    """
    model, tokenizer = checkpoint(settings.model, out)
    longer = settings.length > trained_len(model.config.get_text_config())
    target_len = settings.length if longer else None
    extend(model, settings.extension, target_len=target_len)
    rows = training_rows(
        tokenizer,
        settings.plan,
        Path(out),
        corpus=settings.corpus,
        characters=settings.characters,
        length=settings.length,
        puzzles=settings.puzzles,
    )
    return train_and_save(rows, model, tokenizer, settings.plan, Path(out), lora=settings.lora, target_len=target_len)
