"""Training in several processes, and how it is stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import ParallelismConfig, PartialState
from torch import distributed, nn
from transformers import TrainerCallback, TrainerControl, TrainingArguments

from ropewalk.errors import DoesNotFit
from ropewalk.folders import keep_out_others
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.runtime.layer import NAME
from ropewalk.signals import handling
from ropewalk.train.data.packs import Row

# Several processes that train one model: what they agree on, and what one of them does.


def any_of_us(yes: bool) -> bool:
    """Whether `yes` is true in any process; all processes must call this together."""
    if not distributed.is_available() or not distributed.is_initialized():
        return yes
    answer = torch.tensor([float(yes)], device=PartialState().device)
    distributed.all_reduce(answer, op=distributed.ReduceOp.MAX)
    return bool(answer.item())


def is_main() -> bool:
    """Whether this is the process that writes shared files."""
    return bool(PartialState().is_main_process)


def wait_for_all() -> None:
    """Wait for all processes."""
    PartialState().wait_for_everyone()


def alone_in(folder: Path) -> AbstractContextManager[None]:
    """Keep other trainings out of a folder: the processes of one training write there by turns."""
    if not is_main():
        return nullcontext()
    sentence = f"another training writes to {folder}"
    return keep_out_others(folder, sentence, remedy="wait until it ends, or choose another folder")


# Rows divided among processes (context parallelism): models that cannot be trained this way are refused early.
#
# torch's context parallelism and DeepSpeed's Ulysses replace the model's attention and know a causal mask only. An
# extension in the model's own rotary module works with them; our attention and packed texts do not.


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


# Stopping cleanly: SIGTERM and Ctrl-C finish the step, save, and end the training.


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopOnSignal(TrainerCallback):
    """Save and stop at the end of the step in which a signal comes."""

    def __init__(self) -> None:
        self.came: int | None = None  # the number of the last signal
        self.stopped = False  # before the last step

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        """After a whole step, a checkpoint can be resumed from. Several processes stop at the same step."""
        if any_of_us(self.came is not None):
            control.should_save = True
            control.should_training_stop = True
            self.stopped = bool(state.global_step < state.max_steps)

    def note(self, number: int, frame: Any) -> None:
        """The signal handler."""
        self.came = number


@contextmanager
def recording_signals() -> Iterator[StopOnSignal]:
    """Record signals within a block. What stopped no training is sent again after the block, so that it ends the rest.

    Around a training and the saving of its model, such a block ends when the model is whole.
    """
    callback = StopOnSignal()
    with handling(SIGNALS, callback.note):
        yield callback
    if callback.came is not None and not callback.stopped:
        signal.raise_signal(callback.came)
