"""Whether an extension changes texts of a length at all."""

from __future__ import annotations

from dataclasses import replace

import torch
from transformers import PreTrainedModel

from ropewalk.equation import reference_logits
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.extend import plan_extension
from ropewalk.hf.runtime.layer import ExtendedLayer

LAST_TOKENS = 4  # tokens at the end of a text, which see the most distances
LOGITS_ATOL = 1e-9  # of logits in float64


def changes_nothing(
    model: PreTrainedModel, extension: Extension | str, length: int, *, target_len: int | None = None
) -> bool:
    """Whether all layers have the base model's logits in texts of a length, and the extension learns no numbers."""
    plan = plan_extension(model, extension, target_len=target_len)
    return all(_same_logits(*both, length) for both in zip(plan.base, plan.layers, strict=True))


def _same_logits(base: ExtendedLayer, layer: ExtendedLayer, length: int) -> bool:
    """For the last tokens of a text, on random keys and queries."""
    if layer.learning or layer.factor != base.factor:
        return False
    facts = replace(layer.facts, heads=1, kv_heads=1, sinks=False, weighted=False)  # the same in every head
    k_bgjd = torch.randn(1, 1, length, facts.head_dim, generator=torch.Generator().manual_seed(0))
    q_bhid = k_bgjd.flip(2)[:, :, -LAST_TOKENS:]
    logits, expected = (
        reference_logits(q_bhid, k_bgjd, one.extension, replace(facts, inv_freq=one.facts.inv_freq))
        for one in (layer, base)
    )
    return torch.allclose(logits, expected, rtol=0, atol=LOGITS_ATOL)
