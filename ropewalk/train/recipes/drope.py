"""`drope`: drop the rotation of a checkpoint, and continue its training at its own length until it reads without it.

Source: Gelberg et al. 2025, arXiv:2512.12167; the authors' code, custom_models/drope.py and cfgs/run_cfg. There: rows
of the trained length, no weight decay; 120,000 steps at a rate of 3e-4 for 360 million and 1.7 billion parameters,
5,000 at 1e-4 for 7 billion; 0.5 to 3 % of the tokens of the first training. A line through 360 million and 7 billion
(both axes logarithmic) gives 1e-3 at 14 million parameters.

Deviation: the rate falls in a line, there as a cosine. Texts beyond the trained length need a scale of the logits; it
is a number in the config there, and `log_n` here, which is 1 within the trained length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedModel

from ropewalk.hf.attach.extend import extend
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.facts import trained_len
from ropewalk.train.data.puzzles import NO_PUZZLES, PuzzleShares
from ropewalk.train.recipes.building_blocks import checkpoint, train_and_save, training_rows
from ropewalk.train.recipes.recipe import Characters, Corpus, Model, Rank, RecipeSettings


@dataclass(frozen=True, kw_only=True)
class DroPESettings(RecipeSettings):
    """Which checkpoint loses its rotation, and what it is trained on afterwards."""

    model: Model
    lora: Rank = 0
    corpus: Corpus = "python"
    characters: Characters = 60_000_000
    puzzles: PuzzleShares = NO_PUZZLES

    plan_defaults: ClassVar[Mapping[str, Any]] = {"learning_rate": 3e-4, "weight_decay": 0.0, "decay": 0.97}


def drope(
    out: str | Path,
    settings: DroPESettings,
    options: LoadOptions = UNSTATED,
    *,
    shared: str | Path | None = None,
) -> PreTrainedModel:
    """Drop the rotation of a checkpoint, and continue its training at its own length until it reads without it.

    The result is a standard checkpoint whose config says that no pair rotates. Read texts beyond the trained length
    under `log_n`.

    Args:
        out: the folder of the run; the model is saved in its folder `model`.
        settings: what is trained, on what, and how long.
        options: how the checkpoint is loaded.
        shared: the folder of the tokenised corpus, where it is not `out`.
    """
    model, tokenizer = checkpoint(settings.model, out, options)
    extend(model, "nope")
    rows = training_rows(
        tokenizer,
        settings.plan,
        Path(shared or out),
        corpus=settings.corpus,
        characters=settings.characters,
        length=trained_len(model),
        puzzles=settings.puzzles,
    )
    return train_and_save(rows, model, tokenizer, settings.plan, Path(out), lora=settings.lora)
