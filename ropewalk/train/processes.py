"""Several processes that train one model: what they agree on, and what one of them does."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from accelerate import PartialState
from torch import distributed

from ropewalk.folders import keep_out_others


def any_of_us(yes: bool) -> bool:
    """Whether it is true in any process; all must call this together."""
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
    return keep_out_others(folder, sentence, remedy="wait until it ends, or name another folder")
