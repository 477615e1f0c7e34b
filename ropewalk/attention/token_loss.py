"""The loss of each token without the logits of all tokens: tiles of tokens and of vocabulary, one running log-sum-exp.

    nll_n = ln sum_v exp(h_n . w_v + b_v)  -  (h_n . w_t + b_t),   t the target of n

128,000 tokens over 32,000 words are 15.6 GiB of float32 logits; a tile is a megabyte, and one place holds them all in
turn. Tiles allocated one by one between small answers tear the heap: the process then grew by 20 to 300 MiB.

Legend: n token, v word, d hidden dimension.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.rotation.precision import LOG2_E, compute_dtype
from ropewalk.errors import InvalidValue
from ropewalk.inputs import TYPES

IGNORED = -100  # the target of a token that is not scored
TOKENS, WORDS = 1024, 512  # of a tile: the fastest of those tried, in both precisions


def nll(hidden: Tensor, head_vd: Tensor, targets: Tensor, bias_v: Tensor | None = None) -> Tensor:
    """The loss of each token in nats, float32 (float64 for such input), 0 where the target is IGNORED.

    `hidden` is [..., d] and `targets` [...]; the head is the output layer's weight. Gradients reach hidden states, head
    and bias, and cost as little memory.
    """
    _check(hidden, head_vd, targets, bias_v)
    if not targets.numel():
        return torch.zeros(targets.shape, dtype=compute_dtype(hidden.dtype), device=hidden.device)
    with torch.autocast(hidden.device.type, enabled=False):
        flat: Tensor = TokenLossFunction.apply(  # type: ignore[no-untyped-call]
            hidden.flatten(0, -2), head_vd, bias_v, targets.flatten().long()
        )
    return flat.view(targets.shape)


class TokenScores(NamedTuple):
    """What is said of each target."""

    losses: Tensor  # in nats
    hits: Tensor  # whether it is the likeliest word, the first of equals


@torch.no_grad()
def token_scores(hidden: Tensor, head_vd: Tensor, targets: Tensor, bias_v: Tensor | None = None) -> TokenScores:
    """The losses of `nll`, and whether each target is the likeliest word, by one walk over the tiles."""
    _check(hidden, head_vd, targets, bias_v)
    flat, target_n, room = hidden.flatten(0, -2), targets.flatten().long(), LogitTile(hidden)
    loss_n, hit_n = room.tile.new_zeros(len(flat)), torch.zeros_like(target_n, dtype=torch.bool)
    with torch.autocast(hidden.device.type, enabled=False):
        for rows in _tiles(len(flat), TOKENS):
            lse_n, own_n, hit_n[rows] = _walked(flat[rows], head_vd, bias_v, target_n[rows], room, hits=True)
            loss_n[rows] = (lse_n - own_n).where(target_n[rows] != IGNORED, 0)
    return TokenScores(loss_n.view(targets.shape), hit_n.view(targets.shape))


class TokenLossFunction(torch.autograd.Function):
    """Losses by tiles; in the backward pass each tile's logits are made again."""

    @staticmethod
    def forward(ctx: Any, hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None, target_n: Tensor) -> Tensor:
        """The losses, and the log-sum-exp for the way back."""
        room = LogitTile(hidden_nd)
        lse_n, own_n = room.tile.new_zeros(2, len(hidden_nd))
        for rows in _tiles(len(hidden_nd), TOKENS):
            lse_n[rows], own_n[rows], _ = _walked(hidden_nd[rows], head_vd, bias_v, target_n[rows], room)
        ctx.save_for_backward(hidden_nd, head_vd, bias_v, target_n, lse_n)
        losses: Tensor = (lse_n - own_n).where(target_n != IGNORED, 0)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        """softmax minus the target, tile by tile."""
        hidden_nd, head_vd, bias_v, target_n, lse_n = ctx.saved_tensors
        by_hidden = torch.zeros_like(hidden_nd, dtype=lse_n.dtype)
        by_head = torch.zeros_like(head_vd, dtype=lse_n.dtype)
        by_bias = None if bias_v is None else torch.zeros_like(bias_v, dtype=lse_n.dtype)
        slope_n, room = grads[0].where(target_n != IGNORED, 0), LogitTile(hidden_nd)
        for rows in _tiles(len(hidden_nd), TOKENS):
            for words in _tiles(len(head_vd), WORDS):
                share = room.logits(hidden_nd[rows], head_vd, bias_v, words)
                share.sub_(lse_n[rows, None]).mul_(LOG2_E).exp2_()
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


class LogitTile:
    """Where every tile of logits stands in turn."""

    def __init__(self, hidden_nd: Tensor) -> None:
        # A product soon leaves the range of float16.
        self.multiplied = torch.float32 if hidden_nd.dtype == torch.float16 else hidden_nd.dtype
        self.tile = hidden_nd.new_empty(TOKENS * WORDS, dtype=compute_dtype(hidden_nd.dtype))
        self.product = self.tile
        if self.multiplied != self.tile.dtype:
            self.product = hidden_nd.new_empty(TOKENS * WORDS, dtype=self.multiplied)

    def logits(self, hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None, words: slice) -> Tensor:
        """A tile of logits: multiplied in the model's precision, summed up in at least float32."""
        head_wd = head_vd[words]
        shape = (len(hidden_nd), len(head_wd))
        product, tile = (each[: math.prod(shape)].view(shape) for each in (self.product, self.tile))
        torch.mm(hidden_nd.to(self.multiplied), head_wd.to(self.multiplied).T, out=product)
        if self.product is not self.tile:
            tile.copy_(product)
        return tile if bias_v is None else tile.add_(bias_v[words])


def _walked(
    hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None, target_n: Tensor, room: LogitTile, *, hits: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Of a few tokens the log-sum-exp over all words and the target's own logit, and if asked for whether that is the
    first of the highest: all from the same rounded tiles.
    """
    lse_n, own_n, highest_n = room.tile.new_full((3, len(target_n)), -torch.inf)
    hit_n = torch.zeros_like(target_n, dtype=torch.bool)
    for words in _tiles(len(head_vd), WORDS):
        tile = room.logits(hidden_nd, head_vd, bias_v, words)
        aim = target_n - words.start
        inside = (aim >= 0) & (aim < tile.shape[1])
        own_n = tile.gather(1, aim.clamp(0, tile.shape[1] - 1)[:, None])[:, 0].where(inside, own_n)
        top_n = tile.amax(1)
        if hits:
            hit_n = torch.where(top_n > highest_n, inside & _is_first(tile, aim, inside & (own_n == top_n)), hit_n)
            highest_n = torch.maximum(highest_n, top_n)
        lse_n = torch.logaddexp(lse_n, _logsumexp(tile, top_n))
    return lse_n, own_n, hit_n


def _is_first(tile: Tensor, aim: Tensor, highest: Tensor) -> Tensor:
    """Whether the aim is the first of the highest: indices are dear, and are looked for where it is among those."""
    found = highest.clone()
    found[highest] = tile[highest].argmax(1) == aim[highest]
    return found


def _logsumexp(tile: Tensor, highest_n: Tensor) -> Tensor:
    """Of each row, whose highest is known; uses up the tile."""
    finite = torch.finfo(tile.dtype)
    highest = highest_n.clamp(finite.min, finite.max)
    return tile.sub_(highest[:, None]).mul_(LOG2_E).exp2_().sum(1).log() + highest


def _check(hidden: Tensor, head_vd: Tensor, targets: Tensor, bias_v: Tensor | None) -> None:
    if hidden.dtype not in TYPES:
        raise InvalidValue("hidden", "of floating-point numbers", hidden.dtype)
    if hidden.dim() < 2 or not len(head_vd) or head_vd.dim() != 2 or hidden.shape[-1] != head_vd.shape[1]:
        sizes = f"{tuple(hidden.shape)} and {tuple(head_vd.shape)}"
        raise InvalidValue("hidden and head", "[..., d] and [words, d]", sizes)
    if hidden.dtype != head_vd.dtype:
        raise InvalidValue("head", f"of the hidden states' type ({hidden.dtype})", head_vd.dtype)
    if targets.shape != hidden.shape[:-1] or targets.is_floating_point() or targets.dtype == torch.bool:
        raise InvalidValue("targets", f"whole numbers of shape {tuple(hidden.shape[:-1])}", tuple(targets.shape))
    if bias_v is not None and (bias_v.shape != head_vd.shape[:1] or bias_v.dtype not in TYPES):
        raise InvalidValue("bias", f"floating-point numbers for {len(head_vd)} words", tuple(bias_v.shape))
    devices = {str(each.device) for each in (hidden, head_vd, targets, bias_v) if each is not None}
    if len(devices) > 1:
        raise InvalidValue("hidden, head, targets and bias", "on one device", sorted(devices))
    scored = targets[targets != IGNORED]
    if len(scored) and not 0 <= int(scored.min()) <= int(scored.max()) < len(head_vd):
        rule = f"words of the head (0 to {len(head_vd) - 1}) or {IGNORED}"
        raise InvalidValue("targets", rule, [int(scored.min()), int(scored.max())])
