"""What recipes share: rows of a corpus, and a training that ends with the model in its folder."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.errors import InvalidValue
from ropewalk.folders import appearing
from ropewalk.hf import load, save
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.fetch import fetch_tokenizer
from ropewalk.hf.probe.max_length import require_held
from ropewalk.hf.use.save import FAILURES, save_tokenizer
from ropewalk.lab.data.packs import PackedRows, Row
from ropewalk.lab.data.passages import Passages
from ropewalk.lab.data.tokens import tokenised
from ropewalk.lab.training.train import TrainingPlan, train
from ropewalk.models import path_of

LAYERS = "all-linear"  # what peft is told: every projection but the head


def rows_of(plan: TrainingPlan) -> int:
    """The rows that all processes read together."""
    from accelerate import PartialState

    return plan.steps * plan.rows * plan.accumulate * int(PartialState().num_processes)


def checkpoint(model: str | Path, out: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model to begin from with its tokenizer, from a folder or by a name; not the one that the run will write."""
    model = path_of(str(model))
    if Path(model).resolve() == (Path(out) / "model").resolve():
        raise InvalidValue("out", "another folder than the model's", str(out), remedy="name a new one")
    own = load(model)
    return own, fetch_tokenizer(model)


def packs(
    tokenizer: PreTrainedTokenizerBase,
    plan: TrainingPlan,
    folder: Path,
    *,
    corpus: str,
    characters: int,
    length: int,
    puzzles: Mapping[str, float],
    packed: bool = True,
) -> PackedRows:
    """The rows of a corpus that a plan reads: documents one after the other or, not packed, one passage each."""
    texts = tokenised(corpus, "train", tokenizer, folder / "corpus", most=characters)
    texts = texts if packed else Passages(texts, length)
    return PackedRows(texts, tokenizer, length=length, count=rows_of(plan), seed=plan.seed, puzzles=puzzles)


def trained_on(
    rows: Dataset[Row],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    plan: TrainingPlan,
    folder: Path,
    *,
    lora: int = 0,
    target_len: int | None = None,
) -> PreTrainedModel:
    """Train a model, or adapters of rank `lora` that are merged into it at the end, and keep it."""
    wrapped: Any = _with_adapters(model, lora, plan.seed) if lora else model
    trainer = train(wrapped, rows, plan, folder)
    if trainer.state.global_step >= plan.steps and trainer.is_world_process_zero():
        if lora:
            wrapped.merge_and_unload()  # the model itself, with its own weights changed
        keep(model, tokenizer, folder / "model", target_len=target_len)
    return model


def _with_adapters(model: PreTrainedModel, rank: int, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=LAYERS))


def knows(model: PreTrainedModel, length: int) -> None:
    """A model that is trained on longer rows says so in its config; one whose places end before is refused."""
    require_held(model, length)
    config: Any = model.config.get_text_config()
    config.max_position_embeddings = max(config.max_position_embeddings, length)


def keep(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, *, target_len: int | None = None
) -> None:
    """Write a model so that `ropewalk.load` gives it back; what an earlier end of the same run left is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    handle = handle_of(model)
    if handle is not None:
        if math.isinf(handle.extension.theta.stretch):  # such as a new base: the length is what it was trained at
            target_len = target_len or handle.facts.trained_len
        save(model, folder, target_len=target_len, tokenizer=tokenizer)
        return
    with appearing(folder, FAILURES) as place:
        model.save_pretrained(place)
        save_tokenizer(tokenizer, place)
