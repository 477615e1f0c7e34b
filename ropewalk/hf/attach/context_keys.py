"""Attention to the keys of contexts that were read apart, beside a model's own: the sums merge as a rule of APE says.

The model rotates queries and keys itself, and its cache has the prefix and the question; the contexts' keys lie here.

Legend: b batch, h query head, g key head, r query heads of a key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.hf.attach.attention import attending_configs
from ropewalk.hf.probe.capture import KNOWN, unsupported_arguments
from ropewalk.hf.probe.host import attention_named
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.runtime.forward_pass import padding_mask
from ropewalk.methods.decoding import APE

MERGED = "ropewalk_contexts"  # of this attention function in transformers' registry
_KEYS = "_ropewalk_contexts"  # of an attention module: the keys of its contexts


class ContextKeys(NamedTuple):
    """Keys and values of all contexts in one layer, one after another, as the model rotated them."""

    k_bgjd: Tensor
    v_bgjd: Tensor


@contextmanager
def seeing(
    model: PreTrainedModel, layers: Sequence[ProbedLayer], contexts: Sequence[ContextKeys], rule: APE
) -> Iterator[None]:
    """Let every layer of a model attend to its contexts inside the block."""
    modules = [layer.module for layer in layers]
    for module, keys in zip(modules, contexts, strict=True):
        module.__dict__[_KEYS] = (keys, rule)
    try:
        with attention_named(model, MERGED, _attention, padding_mask, attending_configs(model, layers)):
            yield
    finally:
        for module in modules:
            del module.__dict__[_KEYS]


def _attention(
    module: nn.Module,
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    attention_mask: Any = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls; the keys are those of the model's cache."""
    odd = [name for name in KNOWN - {"dropout"} if kwargs.get(name) is not None] + unsupported_arguments(kwargs)
    if attention_mask is not None or odd:
        asked = ", ".join(sorted(odd)) or "a mask"
        sentence = f"{type(module).__name__} asks attention for {asked}, which does not merge with contexts"
        raise DoesNotFit.because("attention", sentence)
    contexts, rule = module.__dict__[_KEYS]
    factor = 1 / math.sqrt(q_bhid.shape[-1]) if scaling is None else scaling
    out = merge(q_bhid, contexts, ContextKeys(k_bgjd, v_bgjd), rule, factor)
    return out.transpose(1, 2).contiguous(), None


def merge(q_bhid: Tensor, contexts: ContextKeys, rest: ContextKeys, rule: APE, factor: float) -> Tensor:
    """The answer of queries, which are those of the last keys of the rest; `factor` is the model's, of its logits."""
    groups, rows, keys = rest.k_bgjd.shape[1], q_bhid.shape[2], rest.k_bgjd.shape[2]
    q_bgrid = q_bhid.reshape(q_bhid.shape[0], groups, -1, rows, q_bhid.shape[3])
    i, j = (torch.arange(count, device=q_bhid.device) for count in (rows, keys))
    later_ij = j > i[:, None] + keys - rows
    of_rest, lse_rest = _part(q_bgrid, rest, factor, later_ij)
    of_contexts, lse_contexts = _part(q_bgrid, contexts, factor / rule.temperature)
    share_bgri = rule.share(lse_contexts, lse_rest)[..., None].to(of_rest.dtype)
    return torch.lerp(of_rest, of_contexts, share_bgri).flatten(1, 2)


def _part(q_bgrid: Tensor, keys: ContextKeys, factor: float, hidden_ij: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention to some keys, and the logarithm of the sum of its exponentials, in float32 at least."""
    product_bgrij = q_bgrid @ keys.k_bgjd[:, :, None].mT
    logit_bgrij = product_bgrij.to(torch.promote_types(product_bgrij.dtype, torch.float32)) * factor
    if hidden_ij is not None:
        logit_bgrij = logit_bgrij.masked_fill(hidden_ij, -torch.inf)
    lse_bgri = logit_bgrij.logsumexp(-1)
    weight_bgrij = (logit_bgrij - lse_bgri[..., None]).exp().to(keys.v_bgjd.dtype)
    return weight_bgrij @ keys.v_bgjd[:, :, None], lse_bgri
