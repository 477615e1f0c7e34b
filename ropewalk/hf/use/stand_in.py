"""A model that its config alone describes: random weights, and narrow wherever that does not change its attention.

How a model rotates, what its layers see and what its cache holds is decided by its config and by its code, not by the
numbers in its weights. So a probe of a narrow model says what a probe of the whole one would, and a config of 70
billion parameters is enough for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ropewalk.errors import DoesNotFit
from ropewalk.hf.checkpoint.fetch import loader_of

MOST_WEIGHTS = 400_000_000  # numbers in all weights: 1.6 GB
WORDS, FEATURES, RANK = 512, 32, 16
SMALLER = (  # sizes that attention does not depend on
    (re.compile(r"(^|_)vocab_size"), WORDS),
    (re.compile(r"_token_id$"), WORDS - 1),
    (re.compile(r"intermediate_size|^ffn_dim$|^d_ff$|^n_inner$|^ffn_hidden_size$"), FEATURES),
    (re.compile(r"^(q|kv|o)_lora_rank$"), RANK),
)
WIDTHS = ("hidden_size", "n_embd", "d_model")  # attention depends on them where a head is a share of the width
HEADS = ("num_attention_heads", "n_head", "num_heads")
OF_STATES = ("in_channels", "out_channels")  # of convolutions, whose states are part of a cache
UNBUILT = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def stand_in(config: Any) -> Any:
    """A small model whose attention is that of a config; refused where it would need more than MOST_WEIGHTS numbers."""
    original = _build(config, "meta")
    for smaller, sizes in _smaller(config) if original is not None else ():
        outline = _build(smaller, "meta")
        if outline is None or not _is_alike(original, outline, sizes):
            continue
        if sum(parameter.numel() for parameter in outline.parameters()) <= MOST_WEIGHTS:
            model = _build(smaller, "cpu").eval()
            if not sizes or _reads(model):
                return model
    sentence = f"a model of type {config.model_type} cannot be made small enough to be looked at without its weights"
    raise DoesNotFit.because("model", sentence, remedy="pass the folder with its weights")


def weight_bytes(config: Any, dtype: str = "") -> int:
    """The bytes of a model's weights, by its config; 0 where its code builds none, or where they are quantised."""
    model = None if getattr(config, "quantization_config", None) else _build(config, "meta")
    size = getattr(torch, dtype).itemsize if dtype else (getattr(config, "dtype", None) or torch.float32).itemsize
    return 0 if model is None else size * sum(parameter.numel() for parameter in model.parameters())


def _smaller(config: Any) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
    """Copies of a config, each larger than the one before, and the sizes that are smaller there: before and after."""
    features, sizes = deepcopy(config), []
    for part in _parts(features):
        for name, value in list(vars(part).items()):
            most = next((most for pattern, most in SMALLER if pattern.search(name)), None)
            if most is not None and isinstance(value, int) and value > most:
                sizes.append((value, most))
                setattr(part, name, most)
    narrow = deepcopy(features)
    text = narrow.get_text_config()
    heads = next((count for name in HEADS if isinstance(count := vars(text).get(name), int) and count), None)
    width = next((name for name in WIDTHS if name in vars(text)), None)
    if heads and width:
        before, after = getattr(text, width), heads * -(-FEATURES // heads)
        with suppress(AttributeError, RuntimeError):  # of heads that differ between layers, which state their sizes
            if getattr(text, "head_dim", None) is None:
                text.head_dim = before // heads
        setattr(text, width, after)
        yield narrow, [*sizes, (before, after)]
    yield features, sizes
    yield config, []


def _parts(config: Any) -> Iterator[Any]:
    yield config
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if part is not None:
            yield from _parts(part)


def _build(config: Any, device: str) -> Any:
    """The model on a device; None where its code does not build one of these sizes."""
    try:
        with torch.device(device), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return loader_of(config).from_config(config, dtype=getattr(config, "dtype", None) or torch.float32)
    except UNBUILT:
        return None


def _reads(model: Any) -> bool:
    try:
        with torch.no_grad():
            model(input_ids=torch.arange(5)[None], use_cache=False)
    except UNBUILT:
        return False
    return True


def _is_alike(original: nn.Module, smaller: nn.Module, sizes: Sequence[tuple[int, int]]) -> bool:
    """Whether every number that a module keeps is the original's, or follows from a size that became smaller."""
    before, after = dict(original.named_modules()), dict(smaller.named_modules())
    return before.keys() == after.keys() and all(
        value == vars(after[path]).get(name)
        or (name not in OF_STATES and any(_follows(value, vars(after[path]).get(name), *size) for size in sizes))
        for path, module in before.items()
        for name, value in vars(module).items()
        if isinstance(value, int | float)
    )


def _follows(value: float, other: Any, before: int, after: int) -> bool:
    """Whether both numbers are the same whole multiple of a size, or of its root, which embeddings are scaled by."""
    if not isinstance(other, int | float):
        return False
    for one, two in ((before, after), (before**0.5, after**0.5)):
        times = round(value / one)
        if times >= 1 and abs(value - times * one) < 1e-6 * value and abs(other - times * two) < 1e-6 * other:
            return True
    return False
