"""The loss of each token without the logits of all tokens: tiles of tokens and of vocabulary, one running log-sum-exp.

    nll_n = ln sum_v exp(h_n . w_v + b_v)  -  (h_n . w_t + b_t),   t the target of n

128,000 tokens over 32,000 words are 15.6 GiB of float32 logits; a tile is a few megabytes.

Legend: n token, v word, d hidden dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue

IGNORED = -100  # the target of a token that is not scored
TOKENS, WORDS = 512, 512  # of a tile: the fastest of those tried, in both precisions


def nll(hidden: Tensor, head_vd: Tensor, targets: Tensor, bias_v: Tensor | None = None) -> Tensor:
    """The loss of each token in nats, float32 (float64 for such input), 0 where the target is IGNORED.

    `hidden` is [..., d] and `targets` [...]; the head is the output layer's weight. Gradients reach hidden states, head
    and bias, and cost as little memory.
    """
    _check(hidden, head_vd, targets, bias_v)
    flat: Tensor = TokenLoss.apply(hidden.flatten(0, -2), head_vd, bias_v, targets.flatten())  # type: ignore[no-untyped-call]
    return flat.view(targets.shape)


class TokenLoss(torch.autograd.Function):
    """Losses by tiles; in the backward pass each tile's logits are made again."""

    @staticmethod
    def forward(ctx: Any, hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None, target_n: Tensor) -> Tensor:
        """The losses, and the log-sum-exp for the way back."""
        lse_n = torch.cat([_lse(hidden_nd[rows], head_vd, bias_v) for rows in _tiles(len(hidden_nd), TOKENS)])
        word_n = target_n.clamp(min=0)
        own_n = (hidden_nd.to(lse_n.dtype) * head_vd[word_n].to(lse_n.dtype)).sum(-1)
        if bias_v is not None:
            own_n = own_n + bias_v[word_n]
        ctx.save_for_backward(hidden_nd, head_vd, bias_v, target_n, lse_n)
        return (lse_n - own_n).where(target_n != IGNORED, 0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        """softmax minus the target, tile by tile."""
        hidden_nd, head_vd, bias_v, target_n, lse_n = ctx.saved_tensors
        by_hidden = torch.zeros_like(hidden_nd, dtype=lse_n.dtype)
        by_head = torch.zeros_like(head_vd, dtype=lse_n.dtype)
        by_bias = None if bias_v is None else torch.zeros_like(bias_v, dtype=lse_n.dtype)
        slope_n = grads[0].where(target_n != IGNORED, 0)
        for rows in _tiles(len(hidden_nd), TOKENS):
            for words in _tiles(len(head_vd), WORDS):
                share = torch.exp(_logits(hidden_nd[rows], head_vd, bias_v, words) - lse_n[rows, None])
                aim = target_n[rows] - words.start
                hit = (aim >= 0) & (aim < share.shape[1])
                share[hit, aim[hit]] -= 1
                share *= slope_n[rows, None]
                by_hidden[rows] += share @ head_vd[words].to(share.dtype)
                by_head[words] += share.mT @ hidden_nd[rows].to(share.dtype)
                if by_bias is not None:
                    by_bias[words] += share.sum(0)
        bias_grad = None if by_bias is None else by_bias.to(bias_v.dtype)
        return by_hidden.to(hidden_nd.dtype), by_head.to(head_vd.dtype), bias_grad, None


def _tiles(length: int, size: int) -> list[slice]:
    return [slice(first, first + size) for first in range(0, length, size)]


def _lse(hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None) -> Tensor:
    """The log-sum-exp over all words of a few tokens."""
    parts = [torch.logsumexp(_logits(hidden_nd, head_vd, bias_v, words), -1) for words in _tiles(len(head_vd), WORDS)]
    return torch.logsumexp(torch.stack(parts), 0)


def _logits(hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None, words: slice) -> Tensor:
    """A tile of logits: multiplied in the model's precision, summed up in at least float32."""
    tile = hidden_nd @ head_vd[words].mT
    tile = tile if tile.dtype == torch.float64 else tile.float()
    return tile if bias_v is None else tile.add_(bias_v[words])


def _check(hidden: Tensor, head_vd: Tensor, targets: Tensor, bias_v: Tensor | None) -> None:
    if hidden.dim() < 2 or head_vd.dim() != 2 or hidden.shape[-1] != head_vd.shape[1]:
        sizes = f"{tuple(hidden.shape)} and {tuple(head_vd.shape)}"
        raise InvalidValue("hidden and head", "[..., d] and [words, d]", sizes)
    if hidden.dtype != head_vd.dtype:
        raise InvalidValue("head", f"of the hidden states' type ({hidden.dtype})", head_vd.dtype)
    if targets.shape != hidden.shape[:-1] or targets.is_floating_point():
        raise InvalidValue("targets", f"whole numbers of shape {tuple(hidden.shape[:-1])}", tuple(targets.shape))
    if bias_v is not None and bias_v.shape != head_vd.shape[:1]:
        raise InvalidValue("bias", f"of {len(head_vd)} words", tuple(bias_v.shape))
    scored = targets[targets != IGNORED]
    if len(scored) and not 0 <= int(scored.min()) <= int(scored.max()) < len(head_vd):
        rule = f"words of the head (0 to {len(head_vd) - 1}) or {IGNORED}"
        raise InvalidValue("targets", rule, [int(scored.min()), int(scored.max())])
