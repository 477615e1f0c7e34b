"""`uptrain_gqa`: multi-head to grouped-query attention, and a short training that heals it.

Source: Ainslie et al. 2023, arXiv:2305.13245: key and value heads averaged within groups, then 5 % of the
original steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedModel

from ropewalk.hf import convert
from ropewalk.hf.probe.facts import trained_len
from ropewalk.lab.data.packs import NO_PUZZLES
from ropewalk.lab.recipes.keeping import checkpoint, knows, packs, trained_on
from ropewalk.lab.training.train import TrainingPlan
from ropewalk.surgery import MHAToGQA


def uptrain_gqa(
    out: str | Path,
    plan: TrainingPlan,
    *,
    model: str | Path,
    kv_heads: int,
    length: int | None = None,
    corpus: str = "python",
    characters: int = 60_000_000,
    puzzles: Mapping[str, float] = NO_PUZZLES,
) -> PreTrainedModel:
    """Average the key and value heads of a checkpoint in groups, and train it on at its own length."""
    own, tokenizer = checkpoint(model, out)
    grouped = convert(own, MHAToGQA(kv_heads=kv_heads))
    size = length or trained_len(grouped.config.get_text_config())
    knows(grouped, size)
    rows = packs(tokenizer, plan, Path(out), corpus=corpus, characters=characters, length=size, puzzles=puzzles)
    return trained_on(rows, grouped, tokenizer, plan, Path(out))
