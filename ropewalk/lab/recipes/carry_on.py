"""`carry_on`: train a checkpoint on at a longer length, under PI, NTK, YaRN, ABF or any other extension."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedModel

from ropewalk.hf import extend
from ropewalk.lab.packs import NO_PUZZLES
from ropewalk.lab.recipes.keeping import checkpoint, packs, trained_on
from ropewalk.lab.training import Plan


def carry_on(
    out: str | Path,
    plan: Plan,
    *,
    model: str | Path,
    extension: str,
    length: int,
    corpus: str = "python",
    characters: int = 60_000_000,
    puzzles: Mapping[str, float] = NO_PUZZLES,
    lora: int = 0,
) -> PreTrainedModel:
    """Train a checkpoint on at a longer length under an extension ("pi", "yarn", "abf:new_base=500000").

    The whole of it or, with `lora`, adapters of that rank, merged at the end. A static schedule is kept in a standard
    config.
    """
    own, tokenizer = checkpoint(model)
    handle = extend(own, extension, target_len=length)
    known = length if length > handle.facts.trained_len else None
    rows = packs(tokenizer, plan, Path(out), corpus=corpus, characters=characters, length=length, puzzles=puzzles)
    return trained_on(rows, own, tokenizer, plan, Path(out), lora=lora, target_len=known)
