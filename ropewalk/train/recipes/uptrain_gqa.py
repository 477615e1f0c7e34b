"""`uptrain_gqa`: multi-head to grouped-query attention, then a short training that repairs the model.

Source: Ainslie et al. 2023, arXiv:2305.13245: key and value heads averaged within groups, then 5 % of the
original steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from transformers import PreTrainedModel

from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.facts import trained_len
from ropewalk.hf.use.convert import convert
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.surgery import MHAToGQA
from ropewalk.train.data.puzzles import NO_PUZZLES, PuzzleShares
from ropewalk.train.recipes.building_blocks import GENTLE, checkpoint, set_max_length, train_and_save, training_rows
from ropewalk.train.recipes.recipe import Characters, Corpus, Model, Packed, RecipeSettings


@dataclass(frozen=True, kw_only=True)
class UptrainGQASettings(RecipeSettings):
    """How many key heads remain, and what the model is trained on afterwards."""

    model: Model
    kv_heads: Annotated[int, AT_LEAST_ONE, "key and value heads that remain"]
    length: Annotated[int | None, AT_LEAST_ONE, "tokens of a row; nothing means the trained length"] = None
    corpus: Corpus = "python"
    characters: Characters = 60_000_000
    packed: Packed = True
    puzzles: PuzzleShares = NO_PUZZLES

    plan_defaults: ClassVar[Mapping[str, Any]] = GENTLE


def uptrain_gqa(
    out: str | Path,
    settings: UptrainGQASettings,
    options: LoadOptions = UNSTATED,
    *,
    shared: str | Path | None = None,
) -> PreTrainedModel:
    """Average the key and value heads of a checkpoint in groups, and continue its training at its own length.

    Args:
        out: the folder of the run; the model is saved in its folder `model`.
        settings: how many heads remain, on what is trained, and how long.
        options: how the checkpoint is loaded.
        shared: the folder of the tokenised corpus, where it is not `out`.
    """
    model, tokenizer = checkpoint(settings.model, out, options)
    grouped = convert(model, MHAToGQA(kv_heads=settings.kv_heads))
    length = settings.length or trained_len(model)
    set_max_length(grouped, length)
    rows = training_rows(
        tokenizer,
        settings.plan,
        Path(shared or out),
        corpus=settings.corpus,
        characters=settings.characters,
        length=length,
        puzzles=settings.puzzles,
        packed=settings.packed,
    )
    return train_and_save(rows, grouped, tokenizer, settings.plan, Path(out))
