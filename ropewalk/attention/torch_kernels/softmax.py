"""What the model itself adds to the softmax: a cap on its logits, and sinks that take weight but have no value.

    cap(x) = softcap tanh(x / softcap)

    weight(i,j) = exp(cap(logit(i,j)))  /  ( sum over j of exp(cap(logit(i,j)))  +  exp(sink_h) )

A sink is one more part of the softmax: its output is zero and its log-sum-exp is sink_h. Where a kernel returns its
log-sum-exp, the sink is merged exactly afterwards. The kernel's backward pass, called with the output and log-sum-exp
of the whole, is right without change.

Legend: b batch, h query head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.attention.rotation.precision import compute_dtype, to_compute_dtype
from ropewalk.attention.torch_kernels.matmul import PartialAttention


def cap_logits(logit: Tensor, softcap: float | None) -> Tensor:
    """The logits under the model's cap, before masking."""
    return logit if softcap is None else softcap * torch.tanh(logit / softcap)


def softmax(logit: Tensor, sink: Tensor | None) -> Tensor:
    """The weights of keys, in the last dimension; `sink` has one number there."""
    if sink is None:
        return torch.softmax(logit, -1)
    with_sink = torch.cat([logit, sink.to(logit.dtype).expand(*logit.shape[:-1], 1)], -1)
    return torch.softmax(with_sink, -1)[..., :-1]


def merge_parts(parts: Sequence[PartialAttention], sink_h: Tensor | None) -> Tensor:
    """The parts of one softmax, weighted by their sums of exponentials; zeros in a row that sees nothing."""
    if len(parts) == 1 and sink_h is None:
        return parts[0].out_bhid
    lse_pbhi = torch.stack([part.lse_bhi for part in parts])
    seeing_bhi = (lse_pbhi > -torch.inf).any(0)
    lse_pbhi = lse_pbhi.where(seeing_bhi, 0)
    if sink_h is not None:  # a part whose values are zero
        lse_pbhi = torch.cat([lse_pbhi, sink_h[:, None].to(lse_pbhi.device, lse_pbhi.dtype).expand_as(lse_pbhi[:1])])
    share_pbhi = torch.softmax(lse_pbhi, 0)
    total = torch.zeros_like(parts[0].out_bhid, dtype=compute_dtype(parts[0].out_bhid.dtype))
    for share_bhi, part in zip(share_pbhi[: len(parts)], parts, strict=True):
        total = total + share_bhi[..., None] * part.out_bhid
    return total.to(parts[0].out_bhid.dtype)


def add_sinks(part: PartialAttention, sink_h: Tensor) -> PartialAttention:
    """The whole softmax, from the part of the keys."""
    total_bhi = torch.logaddexp(part.lse_bhi, sink_h[:, None].to(part.lse_bhi.dtype))
    share_bhi = torch.exp(part.lse_bhi - total_bhi)
    return PartialAttention((part.out_bhid * share_bhi[..., None]).to(part.out_bhid.dtype), total_bhi)


def sink_gradient(grad_bhid: Tensor, whole: PartialAttention, sink_h: Tensor) -> Tensor:
    """The gradient of the sinks: that of a logit whose value is zero."""
    weight_bhi = torch.exp(sink_h[:, None].to(whole.lse_bhi.dtype) - whole.lse_bhi)
    common_bhi = (to_compute_dtype(grad_bhid) * to_compute_dtype(whole.out_bhid)).sum(-1)
    return -(weight_bhi * common_bhi).sum((0, 2)).to(sink_h.dtype)
