"""Rows divided among processes (context parallelism): models that cannot be trained this way are refused early.

torch's context parallelism and DeepSpeed's Ulysses replace the model's attention and know a causal mask only. An
extension in the model's own rotary module works with them; our attention and packed texts do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from accelerate import ParallelismConfig
from torch import nn
from transformers import TrainingArguments

from ropewalk.errors import DoesNotFit
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.runtime.layer import NAME
from ropewalk.train.data.packs import Row

VARIABLE = "ACCELERATE_USE_PARALLELISM_CONFIG"  # set by `accelerate launch`
Collate = Callable[[list[Any]], Row]


def processes_per_row(arguments: TrainingArguments) -> int:
    """How many processes share a row."""
    config = arguments.parallelism_config
    if config is None and os.environ.get(VARIABLE, "false").lower() in ("true", "1"):
        config = ParallelismConfig()
    return max(config.cp_size, config.sp_size) if config is not None else 1


def require_divisible(model: nn.Module, parts: int) -> None:
    """Refuse a model whose attention would be computed wrongly where rows are divided."""
    host = host_of(model)
    attention = host.config.get_text_config()._attn_implementation
    if parts == 1 or attention == "sdpa":
        return
    got, remedy = attention, "load the model with attn_implementation='sdpa'"
    handle = handle_of(host)
    if attention == NAME and handle is not None:
        got = str(handle.extension.to_json())
        remedy = "shard the model alone (fsdp, docs/training.md), or take a static schedule (pi, ntk, yarn, abf)"
    rule = "a static schedule under sdpa, where the tokens of a row are divided among processes"
    raise DoesNotFit("extension", rule, got, remedy=remedy)


def check_rows(collate: Collate, parts: int) -> Collate:
    """Refuse batches that cannot be divided: every row must be one text of a divisible length."""
    if parts == 1:
        return collate

    def checked(items: list[Any]) -> Row:
        batch = collate(items)
        if batch["input_ids"].shape[1] % (2 * parts):
            rule = f"a multiple of {2 * parts}, where rows are divided among {parts} processes"
            raise DoesNotFit("length", rule, batch["input_ids"].shape[1])
        if (batch["position_ids"][:, 1:] <= batch["position_ids"][:, :-1]).any():
            remedy = "use Passages (packing puts several texts in a row)"
            raise DoesNotFit("rows", "one text each where rows are divided", "packed texts", remedy=remedy)
        return batch

    return checked
