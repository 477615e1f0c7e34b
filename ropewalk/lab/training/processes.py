"""Several processes that train one model: what they agree on, and what one of them does."""

from __future__ import annotations

import torch
from accelerate import PartialState
from torch import distributed


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


def together() -> None:
    """Wait for all processes."""
    PartialState().wait_for_everyone()
