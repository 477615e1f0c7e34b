"""What recipes are built from: a checkpoint, rows of a corpus, and a training that saves the model in the end."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainerCallback

from ropewalk.equation import reference_logits
from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.folders import make_folder, write_whole
from ropewalk.hf.attach.extend import plan_extension, require_extendable
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_tokenizer
from ropewalk.hf.checkpoint.own_files import require_own_files, sources_of
from ropewalk.hf.load_options import UNSTATED, LoadOptions, require_plausible
from ropewalk.hf.probe.facts import lengths_of
from ropewalk.hf.probe.max_length import require_held
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.hf.use.save import FAILURES, load, save, save_tokenizer
from ropewalk.models import path_of
from ropewalk.train.data.packs import PackedRows, Passages, Row
from ropewalk.train.data.puzzles import PuzzleShares
from ropewalk.train.data.tokens import end_token, tokenise
from ropewalk.train.processes import recording_signals
from ropewalk.train.train import TrainingPlan, train

LORA_LAYERS = "all-linear"  # in peft: every projection but the head
LOGGED = "losses.json"  # what Trainer logged of a run
LAST_TOKENS = 4  # tokens at the end of a text, which see the most distances
LOGITS_ATOL = 1e-9  # of logits in float64
GENTLE = {"learning_rate": 2e-4}  # defaults of a plan for weights that are trained already


def rows_of(plan: TrainingPlan) -> int:
    """The rows that all processes together read under a plan."""
    from accelerate import PartialState

    return plan.steps * plan.rows * plan.accumulate * int(PartialState().num_processes)


def checkpoint(
    model: str | Path,
    out: str | Path,
    options: LoadOptions = UNSTATED,
    *,
    extension: str = "",
    length: int = 0,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model to begin from and its tokenizer, from a folder or by name; the folder that the run writes is refused.

    In float32, as a plan says: in bfloat16 small steps would round to nothing. An extension for rows of a length is
    refused before the weights are read, where the config says why.
    """
    model = path_of(str(model))
    if Path(model).resolve() == (Path(out) / "model").resolve():
        raise InvalidValue("out", "another folder than the model's", str(out), remedy="name a new one")
    require_own_files(model)
    require_plausible(model)
    if extension:
        known = lengths_of(fetch_config(model, options).get_text_config(), corrected=options.trained_len).trained
        require_extendable(model, extension, length if length > known else None, options)
    loaded, tokenizer = load(model, options=options, dtype=torch.float32), fetch_tokenizer(model, options)
    end_token(tokenizer)  # refused now, and not when a corpus has been read
    return loaded, tokenizer


def training_rows(
    tokenizer: PreTrainedTokenizerBase,
    plan: TrainingPlan,
    folder: Path,
    *,
    corpus: str,
    characters: int,
    length: int,
    puzzles: PuzzleShares,
    packed: bool = True,
    marked: bool = False,
) -> PackedRows:
    """The rows of a corpus that a plan reads.

    Args:
        tokenizer: the model's.
        plan: says how many rows are read, and their seed.
        folder: the tokenised corpus is kept in its folder `corpus`.
        corpus: the source of the documents.
        characters: of the corpus that are read at most.
        length: tokens of a row.
        puzzles: shares of the rows that are puzzles.
        packed: several documents in a row; otherwise every row is one passage.
        marked: every text of a row begins with the tokenizer's end token.
    """
    texts = tokenise(corpus, "train", tokenizer, folder / "corpus", most=characters)
    texts = texts if packed else Passages(texts, length)
    marker = end_token(tokenizer) if marked else None
    return PackedRows(
        texts, tokenizer, length=length, count=rows_of(plan), seed=plan.seed, puzzles=puzzles.shares(), marker=marker
    )


def _train_logged(
    model: Any, rows: Dataset[Row], plan: TrainingPlan, folder: Path, callbacks: Sequence[TrainerCallback]
) -> Trainer:
    """Train, and keep what was logged of it in the run's folder."""
    trainer = train(model, rows, plan, folder, callbacks=callbacks)
    if trainer.is_world_process_zero():
        logged = [row for row in trainer.state.log_history if "loss" in row]
        write_whole(folder / LOGGED, json.dumps({"rows": logged}, indent=1) + "\n")
    return trainer


def train_and_save(
    rows: Dataset[Row],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    plan: TrainingPlan,
    folder: Path,
    *,
    lora: int = 0,
    target_len: int | None = None,
    before_saving: Callable[[], None] = lambda: None,
    callbacks: Sequence[TrainerCallback] = (),
) -> PreTrainedModel:
    """Train a model, and save it in `model` in the folder of the run once the plan is complete.

    Args:
        rows: what it is trained on.
        model: is trained in place.
        tokenizer: is saved with the model.
        plan: how long and how fast it is trained.
        folder: of the run.
        lora: rank of adapters that are trained instead and merged at the end; 0 trains all weights.
        target_len: length that the model is saved for, where its extension needs one.
        before_saving: is called between the last step and the saving.
        callbacks: of Trainer.
    """
    wrapped: Any = _add_adapters(model, lora, plan.seed) if lora else model
    with recording_signals():  # until the model is whole
        trainer = _train_logged(wrapped, rows, plan, folder, callbacks)
        if trainer.state.global_step >= plan.steps and trainer.is_world_process_zero():
            if lora:
                wrapped.merge_and_unload()  # changes the weights of `model` itself
            before_saving()
            keep(model, tokenizer, folder / "model", target_len=target_len)
    return model


def _add_adapters(model: PreTrainedModel, rank: int, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=LORA_LAYERS))


def set_max_length(model: PreTrainedModel, length: int) -> None:
    """Raise a config's maximum length to that of longer rows; a position table that is too short is refused."""
    require_held(model, length)
    config: Any = model.config.get_text_config()
    config.max_position_embeddings = max(config.max_position_embeddings, length)


def keep(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, *, target_len: int | None = None
) -> None:
    """Save a model so that `ropewalk.load` reads it.

    Args:
        model: may be extended.
        tokenizer: is saved with it.
        folder: what an earlier end of the same run left there is replaced.
        target_len: length that the model is saved for, where its extension needs one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    handle = handle_of(model)
    if handle is not None:
        if math.isinf(
            handle.extension.frequencies_or_rope.stretch
        ):  # such as a new base: the length is the trained one
            target_len = target_len or handle.facts.trained_len
        save(model, folder, target_len=target_len, tokenizer=tokenizer)
        return
    require_own_files(*sources_of(model, tokenizer))
    with make_folder(folder, FAILURES) as place:
        model.save_pretrained(place)
        save_tokenizer(tokenizer, place)


def changes_nothing(
    model: PreTrainedModel, extension: Extension | str, length: int, *, target_len: int | None = None
) -> bool:
    """Whether texts of a length are read exactly as by the base model, in all layers, and nothing is learned.

    Args:
        model: the base model.
        extension: or a line.
        length: tokens of the texts.
        target_len: of the extension, where it needs one.
    """
    plan = plan_extension(model, extension, target_len=target_len)
    return all(_same_logits(*both, length) for both in zip(plan.base, plan.layers, strict=True))


def _same_logits(base: ExtendedLayer, layer: ExtendedLayer, length: int) -> bool:
    """For the last tokens of a text, on random keys and queries."""
    if layer.learning or layer.factor != base.factor:
        return False
    facts = replace(layer.facts, heads=1, kv_heads=1, sinks=False, weighted=False)  # each part is in every head
    k_bgjd = torch.randn(1, 1, length, facts.head_dim, generator=torch.Generator().manual_seed(0))
    q_bhid = k_bgjd.flip(2)[:, :, -LAST_TOKENS:]
    logits = [
        reference_logits(q_bhid, k_bgjd, part.extension, replace(facts, inv_freq=one.facts.inv_freq))
        for one in (base, layer)
        for part in one.extension.head_parts(one.facts)
    ]
    return all(torch.allclose(other, logits[0], rtol=0, atol=LOGITS_ATOL) for other in logits[1:])
