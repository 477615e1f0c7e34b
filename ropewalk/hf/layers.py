"""One layer under an extension: what is in force there, and its attention.

Legend: b batch, h query head, g key head, i query, j key, n token, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.attention import attend
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.caches import MemoryLayer
from ropewalk.hf.facts import own_frequencies
from ropewalk.hf.passes import CURRENT, PASS, Pass
from ropewalk.hf.probe import Layer
from ropewalk.reach import Window
from ropewalk.spec import Weights

NAME = "ropewalk"  # of the attention function, in transformers' registry
PREFIX = "ropewalk_"  # of the parameters that an extension brings to an attention module
ATTRIBUTE = "_ropewalk"  # of an attention module, where its layer is kept


class Attached(NamedTuple):
    """An attention module with the extension in force there."""

    depth: int
    layer: Layer
    extension: Extension
    facts: Facts
    weights: Mapping[str, Weights]  # what its biases and scales learn
    left_alone: bool  # for the sake of a window of its own
    factor: float  # what queries are multiplied by, so that dividing by sqrt(d) gives the model's own scaling


def attached(depth: int, layer: Layer, facts: Facts, extension: Extension, lift_windows: bool) -> Attached:
    """What is in force in this layer: what the extension says, and what it leaves open as the model has it.

    A layer with a window of its own never sees a distance it does not know, and is left alone.
    """
    own = extension.at_layer(depth, facts)
    temperature = layer.temperature**2 if own.frequencies is None else 1.0
    left_alone = layer.window is not None and not lift_windows
    if layer.window is not None and left_alone:
        own, temperature = Extension(reach=Window(window=layer.window)), layer.temperature**2
    if own.frequencies is None or not layer.rotating:
        own = replace(own, frequencies=own_frequencies(facts, layer))
    # Numbers drawn at random are for training, and come with the pass.
    own = replace(own, positions=None)
    factor = layer.scaling * math.sqrt(layer.head_dim) * temperature
    own.check_against(facts)
    weights = own.weights(facts, torch.Generator().manual_seed(depth))
    learning = {name: {key: nn.Parameter(value) for key, value in group.items()} for name, group in weights.items()}
    return Attached(depth, layer, own, facts, learning, left_alone, factor)


def learned(own: Attached) -> dict[str, nn.Parameter]:
    """What the layer's biases and scales learn, by the names under which its module has them."""
    pairs = [(name, key, value) for name, group in own.weights.items() for key, value in group.items()]
    return {f"{PREFIX}{name}_{key}": value for name, key, value in pairs if isinstance(value, nn.Parameter)}


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attention(
    module: nn.Module,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    _: Any,
    dropout: float = 0.0,
    **given: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in place of its own: turn, reach and weigh as the layer's extension says."""
    own: Attached | None = module.__dict__.get(ATTRIBUTE)
    now = given.get(PASS) or CURRENT.get()
    if own is None or now is None:
        remedy = "call the model that was extended, and give models configs of their own"
        raise DoesNotFit("attention", "called from a model that was extended", type(module).__name__, remedy=remedy)
    if dropout:
        raise InvalidValue(
            "attention dropout", "0 under an extension", dropout, remedy="set config.attention_dropout = 0"
        )
    q_bhid, k_bgjd = (_rotating_first(x, own.layer) for x in (q_bhid, k_bgjd))
    if own.factor != 1:
        q_bhid = q_bhid * own.factor
    held = now.cache.layers[own.depth] if now.cache is not None else None
    if isinstance(held, MemoryLayer):
        held.expected = False
        out = held.memory.read(q_bhid, k_bgjd, v_bgjd)
    else:
        out = _attend(own, now, q_bhid, k_bgjd, v_bgjd)
    return out.transpose(1, 2).contiguous(), None


def _attend(own: Attached, now: Pass, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
    """Without a cache, or with one of transformers', which then holds keys as they came."""
    numbers, documents, k_bgjd, v_bgjd = now.seen(own.depth, k_bgjd, v_bgjd)
    return attend(
        q_bhid,
        k_bgjd,
        v_bgjd,
        own.extension,
        own.facts,
        positions_bj=numbers,
        documents_bj=documents,
        weights=own.weights,
    )


def _rotating_first(x_bhnd: Tensor, layer: Layer) -> Tensor:
    """Products do not ask for the order of dimensions; here the rotating ones come first."""
    return x_bhnd.roll(-layer.first, -1) if layer.first else x_bhnd
