"""Several processes that train one model: what they must agree on, and what only one of them does."""

from __future__ import annotations

import torch
from accelerate import PartialState
from torch import distributed


def any_of_us(yes: bool) -> bool:
    """Whether it is so in any process; all must ask together."""
    if not distributed.is_available() or not distributed.is_initialized():
        return yes
    told = torch.tensor([float(yes)], device=PartialState().device)
    distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
    return bool(told.item())


def is_main() -> bool:
    """Whether this process writes what is written once."""
    return bool(PartialState().is_main_process)


def together() -> None:
    """Wait until every process is here."""
    PartialState().wait_for_everyone()
