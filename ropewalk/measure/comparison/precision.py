"""In which precision a model is measured where nobody chose one: the faster here, found out while a plan is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.hf.checkpoint.tokens import token_ids
from ropewalk.hf.load_options import AUTO, LoadOptions
from ropewalk.hf.loading import is_small
from ropewalk.hf.use.inspect import Inspection
from ropewalk.measure.comparison.plan import CALIBRATED, Cost, calibrate, cost_of, product_seconds

OTHER_PRECISION = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float32}
FASTER = 1.1  # times as fast, from which on another precision is taken
DECISIVE = 3.0  # times as fast products: a model is then not read in the slower precision at all


def is_free(model: Any, loaded: Any, options: LoadOptions) -> bool:
    """Whether nobody has chosen a precision: a loaded model has one, and a small model keeps its own."""
    named = isinstance(model, str | Path) and options.dtype == AUTO
    return named and loaded.device.type == "cpu" and not is_small(loaded)


def calibration_text(tokenizer: Any, trained_len: int) -> Tensor:
    """The tokens that a model reads to show how fast it is here."""
    words = " ".join(f"word {number}" for number in range(CALIBRATED[-1]))
    return token_ids(tokenizer, words, min(trained_len, CALIBRATED[-1]))


def size_in_words(model: Any) -> str:
    """How large a model is, and in which precision it is measured."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{count / 1e6:,.0f} million parameters in {str(model.dtype).removeprefix('torch.')}"


def calibrated_in_fastest(model: Any, inspection: Inspection, ids: Tensor, *, free: bool, workers: int) -> Cost:
    """The cost of a model here for so many workers; where it is free, the model is then in the faster precision."""
    before, loaded = model.dtype, [parameter.data for parameter in model.parameters()]
    costs, known = dict[torch.dtype, Cost](), inspection.facts.trained_len
    with _threads(1 if workers > 1 else torch.get_num_threads()):  # as many as each of several workers has
        for dtype in _precisions(before) if free else (before,):
            costs[dtype] = calibrate(cost_of(_cast(model, loaded, before, dtype), inspection), model, ids)
    # The precision that was loaded has to be clearly slower.
    fastest = min(costs, key=lambda dtype: costs[dtype].seconds(known) * (1.0 if dtype is before else FASTER))
    _cast(model, loaded, before, fastest)
    return costs[fastest].times(workers)


def _precisions(dtype: torch.dtype) -> list[torch.dtype]:
    """Those worth trying: the model's, and another; one alone where products decide."""
    if dtype not in OTHER_PRECISION:
        return [dtype]
    other = OTHER_PRECISION[dtype]
    times = product_seconds(dtype) / product_seconds(other)
    return [other] if times > DECISIVE else [dtype] if times * DECISIVE < 1 else [dtype, other]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of torch inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cast(model: Any, loaded: Sequence[Tensor], before: torch.dtype, dtype: torch.dtype) -> Any:
    """The model in a precision, made of the weights as they were loaded: what was rounded once has lost its digits."""
    for parameter, data in zip(model.parameters(), loaded, strict=True):
        parameter.data = data
    model.config.dtype = before
    return model if dtype is before else in_precision(model, dtype)


def in_precision(model: Any, dtype: Any) -> Any:
    """The model with its weights in another precision, as if it was loaded so: its rotary tables stay as they are."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype
    return model
