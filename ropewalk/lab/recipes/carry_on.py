"""`carry_on`: train a checkpoint on at a longer length, under PI, NTK, YaRN, ABF or any other extension."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedModel

from ropewalk.hf import extend
from ropewalk.hf.probe.facts import trained_len
from ropewalk.lab.data.packs import NO_PUZZLES
from ropewalk.lab.recipes.keeping import checkpoint, packs, trained_on
from ropewalk.lab.training.train import TrainingPlan


def carry_on(
    out: str | Path,
    plan: TrainingPlan,
    *,
    model: str | Path,
    extension: str,
    length: int,
    corpus: str = "python",
    characters: int = 60_000_000,
    puzzles: Mapping[str, float] = NO_PUZZLES,
    lora: int = 0,
) -> PreTrainedModel:
    """Train a checkpoint on under an extension, at a longer length ("pi", "yarn") or at its own ("rope", "alibi").

    The whole of it or, with `lora`, adapters of that rank, merged at the end. A static schedule is kept in a standard
    config.
    """
    own, tokenizer = checkpoint(model, out)
    known = length if length > trained_len(own.config.get_text_config()) else None
    extend(own, extension, target_len=known)
    rows = packs(tokenizer, plan, Path(out), corpus=corpus, characters=characters, length=length, puzzles=puzzles)
    return trained_on(rows, own, tokenizer, plan, Path(out), lora=lora, target_len=known)
