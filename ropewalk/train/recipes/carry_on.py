"""`carry_on`: train a checkpoint on at a longer length, under PI, NTK, YaRN, ABF or any other extension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.facts import trained_len
from ropewalk.methods.positions import PoSE
from ropewalk.methods.record import A_SHARE, AT_LEAST_ONE, NOT_NEGATIVE
from ropewalk.train.data.numbering import Mixture, mix_two_lengths
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.data.puzzles import NO_PUZZLES, PuzzleShares
from ropewalk.train.data.tokens import tokenise
from ropewalk.train.learned_theta import LearnedTheta
from ropewalk.train.recipes.building_blocks import (
    GENTLE,
    changes_nothing,
    checkpoint,
    rows_of,
    train_and_save,
    training_rows,
)
from ropewalk.train.recipes.recipe import Characters, Corpus, Model, Rank, RecipeSettings
from ropewalk.train.second_view import second_view


@dataclass(frozen=True, kw_only=True)
class CarryOnSettings(RecipeSettings):
    """Which checkpoint is trained further, under which extension, on which text."""

    model: Model
    extension: Annotated[str, "such as pi, ntk, yarn or abf:new_base=500000; rope for none"]
    length: Annotated[int, AT_LEAST_ONE, "tokens of a row"]
    short_rows: Annotated[
        float | None,
        A_SHARE,
        "share of rows with texts of the trained length, which the extension must leave unchanged",
    ] = None
    learn_theta: Annotated[
        bool, "learn a factor of every pair's frequency with the weights (LeRoPE), and keep it as a table"
    ] = False
    second_view: Annotated[
        float,
        NOT_NEGATIVE,
        "weight of the divergence from a second reading, whose positions jump (RoPE-perturbed self-distillation)",
    ] = 0.0
    jumps_to: Annotated[
        int | None, AT_LEAST_ONE, "length that the second reading's positions simulate; twice the row's by default"
    ] = None
    lora: Rank = 0
    corpus: Corpus = "python"
    characters: Characters = 60_000_000
    puzzles: PuzzleShares = NO_PUZZLES

    plan_defaults: ClassVar[Mapping[str, Any]] = GENTLE

    def check(self) -> None:
        """Adapters are saved without what else is learned."""
        if self.learn_theta and self.lora:
            sentence = "learn_theta trains all weights, since checkpoints of adapters do not hold what it learns"
            raise Conflict.because("learn_theta", sentence, remedy="leave lora out")
        if self.jumps_to is not None and self.jumps_to < self.length:
            raise InvalidValue("jumps_to", f"at least the length of a row ({self.length})", self.jumps_to)


def carry_on(
    out: str | Path,
    settings: CarryOnSettings,
    options: LoadOptions = UNSTATED,
    *,
    shared: str | Path | None = None,
) -> PreTrainedModel:
    """Train a checkpoint on under an extension, at a longer length ("pi", "yarn") or at its own ("rope", "alibi").

    All weights or, with `lora`, adapters of that rank, merged at the end. A static schedule is kept in a standard
    config, and so is the table that `learn_theta` makes of it. With `short_rows`, long texts are trained under the
    extension and short ones as before, in one batch. With `second_view`, the model also learns to say the same
    where positions jump.

    Args:
        out: the folder of the run; the model is saved in its folder `model`.
        settings: what is trained, on what, and how long.
        options: how the checkpoint is loaded.
        shared: the folder of the tokenised corpus, where it is not `out`.
    """
    line, length = settings.extension, settings.length
    model, tokenizer = checkpoint(settings.model, out, options, extension=line, length=length)
    short = trained_len(model)
    target_len = settings.length if settings.length > short else None
    if settings.short_rows is not None:
        require_short_unchanged(model, settings.extension, short=short, length=settings.length)
    extend(model, settings.extension, target_len=target_len)
    rows = _rows(tokenizer, settings, Path(shared or out), short)
    theta = LearnedTheta(model) if settings.learn_theta else None
    jumping = PoSE(target_len=settings.jumps_to or 2 * settings.length)
    with second_view(model, jumping, weight=settings.second_view):
        return train_and_save(
            rows,
            model,
            tokenizer,
            settings.plan,
            Path(out),
            lora=settings.lora,
            target_len=target_len,
            before_saving=theta.settle if theta else lambda: None,
            callbacks=[theta] if theta else [],
        )


def _rows(
    tokenizer: PreTrainedTokenizerBase, settings: CarryOnSettings, folder: Path, short: int
) -> PackedRows | Mixture:
    """Rows of all documents, or of short texts and of long documents."""
    plan = settings.plan
    if settings.short_rows is None:
        return training_rows(
            tokenizer,
            plan,
            folder,
            corpus=settings.corpus,
            characters=settings.characters,
            length=settings.length,
            puzzles=settings.puzzles,
        )
    return mix_two_lengths(
        tokenise(settings.corpus, "train", tokenizer, folder / "corpus", most=settings.characters),
        tokenizer,
        short=short,
        share=settings.short_rows,
        length=settings.length,
        count=rows_of(plan),
        seed=plan.seed,
        puzzles=settings.puzzles.shares(),
    )


def require_short_unchanged(model: PreTrainedModel, extension: str, *, short: int, length: int) -> None:
    """Refuse an extension for `length` tokens under which texts of `short` tokens are not read as by the base model."""
    if length <= short:
        rule = f"above the trained length ({short}) where short_rows mixes both"
        raise DoesNotFit("length", rule, length, remedy="leave short_rows out")
    if not changes_nothing(model, extension, short, target_len=length):
        sentence = f"{extension} changes texts of {short} tokens too, and short_rows needs them unchanged"
        remedy = "take a dynamic schedule: dynamic_yarn, dynamic_ntk, or frequencies.longrope without short"
        raise DoesNotFit.because("short_rows", sentence, remedy=remedy)
