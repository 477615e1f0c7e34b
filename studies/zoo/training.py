"""How a model of the zoo is trained: from the start, with longer rows from some step on, or from another's weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.length_schedule import LengthSchedule, LengthStage, stage_ends
from ropewalk.train.recipes.building_blocks import train_and_save, training_rows
from ropewalk.train.recipes.pretrain import (
    PretrainSettings,
    extension_for,
    new_model,
    pretrain,
    require_another_training,
    vocabulary_in,
)
from ropewalk.train.recipes.uptrain_gqa import UptrainGQASettings, uptrain_gqa
from ropewalk.train.train import TrainingPlan

from studies.zoo.methods import LONGER, METHODS, UPTRAINED
from studies.zoo.settings import ZooSettings

NEW_BASE = 500_000.0  # from the longer rows on, as in Llama 2 Long, whose rows became eight times as long too
GENTLER = 3  # the rate of trained weights is this much lower


def place_of(name: str, folder: Path, settings: ZooSettings) -> Path:
    """The folder of a model."""
    return folder / "models" / f"{name}-{settings.plan.seed}"


def require_trainable(name: str, settings: ZooSettings) -> None:
    """Refuse at once what would be refused when a method's turn comes, hours later."""
    method, plan = METHODS[name], settings.plan
    if not method.needs:
        shape, line = method.shaped(settings.shape), method.line(settings.shape)
        require_another_training(shape, line, extension_for(shape, line))
    if method.longer_from is not None:
        if plan.rows % LONGER:
            raise InvalidValue("rows", f"a multiple of {LONGER}, where rows become longer", plan.rows)
        stage_ends([share for share in (method.longer_from, 1 - method.longer_from) if share], plan.steps)
    if method.kv_heads and settings.shape.heads % method.kv_heads:
        rule = f"a multiple of {method.kv_heads}, the key heads that are left"
        raise InvalidValue("heads", rule, settings.shape.heads)


def train_method(name: str, folder: Path, settings: ZooSettings) -> None:
    """Train one model, or resume its training."""
    method = METHODS[name]
    if method.kv_heads:
        _grouped(name, folder, settings)
    elif method.longer_from is not None:
        _with_longer_rows(name, method.longer_from, folder, settings)
    else:
        _from_the_start(name, folder, settings)


def _from_the_start(name: str, folder: Path, settings: ZooSettings) -> None:
    method = METHODS[name]
    pretraining = PretrainSettings(
        plan=replace(settings.plan, steps=method.budget * settings.plan.steps),
        shape=method.shaped(settings.shape),
        extension=method.line(settings.shape),
        packed=False,
        marked=method.marked,
        corpus=settings.corpus,
        characters=settings.characters,
        puzzles=settings.puzzles,
    )
    pretrain(place_of(name, folder, settings), pretraining, shared=folder)


def _with_longer_rows(name: str, share: float, folder: Path, settings: ZooSettings) -> None:
    """Short rows for a share of the steps, then longer ones under a larger base; as many tokens a step."""
    plan, length = settings.plan, settings.shape.trained_len
    fewer = replace(plan, rows=plan.rows // LONGER)
    tokenizer = vocabulary_in(folder, settings.corpus, settings.shape.vocabulary)
    stages = [LengthStage(share, _rows(tokenizer, folder, settings, plan, length))] if share else []
    stages.append(LengthStage(1 - share, _rows(tokenizer, folder, settings, fewer, LONGER * length), NEW_BASE))
    model = new_model(settings.shape, Extension(), end=tokenizer.eos_token_id, seed=plan.seed)
    train_and_save(LengthSchedule(stages, fewer), model, tokenizer, fewer, place_of(name, folder, settings))


def _grouped(name: str, folder: Path, settings: ZooSettings) -> None:
    """Fewer key heads in another's model, then a little training at a lower rate."""
    plan, method = settings.plan, METHODS[name]
    uptraining = UptrainGQASettings(
        plan=replace(plan, steps=max(1, round(UPTRAINED * plan.steps)), learning_rate=plan.learning_rate / GENTLER),
        model=str(place_of(method.begun_from, folder, settings) / "model"),
        kv_heads=method.kv_heads,
        packed=False,
        corpus=settings.corpus,
        characters=settings.characters,
        puzzles=settings.puzzles,
    )
    uptrain_gqa(place_of(name, folder, settings), uptraining, shared=folder)


def _rows(
    tokenizer: PreTrainedTokenizerBase, folder: Path, settings: ZooSettings, plan: TrainingPlan, length: int
) -> PackedRows:
    """Rows of one passage, or of as many puzzles as fill them."""
    return training_rows(
        tokenizer,
        plan,
        folder,
        corpus=settings.corpus,
        characters=settings.characters,
        length=length,
        puzzles=settings.puzzles,
        packed=False,
    )
