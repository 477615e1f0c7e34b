"""The loss of every token without all logits in memory: blocks of tokens and of words, one running log-sum-exp.

    nll_n = ln sum_v exp(h_n . w_v + b_v)  -  (h_n . w_t + b_t),   t the target of n

128,000 tokens over 32,000 words are 15.6 GiB of float32 logits; a block is a megabyte, and all blocks use the same
memory. Blocks allocated one by one fragmented the heap: the process then grew by 20 to 300 MiB.

Legend: n token, v word, d hidden dimension.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.rotation.rotate import LOG2_E, compute_dtype
from ropewalk.errors import InvalidValue
from ropewalk.extension.inputs import TYPES

IGNORED = -100  # the target of a token that is not scored
TOKENS_PER_BLOCK, WORDS_PER_BLOCK = 1024, 512  # of a block: the fastest of those tried on a CPU, in both precisions
ON_GPU = (4096, 8192)  # where many small steps leave it idle: 128 MiB in float32


def nll(hidden: Tensor, head_vd: Tensor, targets: Tensor, bias_v: Tensor | None = None) -> Tensor:
    """The loss of every token in nats, [...] in float32 (float64 for float64 inputs), 0 where the target is -100.

    `hidden` is [..., d], `head_vd` the output layer's weight, [words, d], `targets` [...] whole numbers, and `bias_v`
    [words]. Gradients reach hidden states, head and bias, with as little memory.

        losses = nll(hidden, model.lm_head.weight, targets)  # hidden [1, 131072, 512] gives [1, 131072]
        losses.mean().backward()
    """
    _check(hidden, head_vd, targets, bias_v)
    if not targets.numel():
        nothing = sum(x.reshape(-1)[:0].sum() for x in (hidden, head_vd, bias_v) if x is not None)
        return torch.zeros(targets.shape, dtype=compute_dtype(hidden.dtype), device=hidden.device) + nothing
    with torch.autocast(hidden.device.type, enabled=False):
        flat: Tensor = TokenLossFunction.apply(  # type: ignore[no-untyped-call]
            hidden.flatten(0, -2), head_vd, bias_v, targets.flatten().long()
        )
    return flat.view(targets.shape)


class TokenScores(NamedTuple):
    """The scores of every target."""

    losses: Tensor  # in nats
    hits: Tensor  # whether it is the likeliest word, the first of equal ones


@torch.no_grad()
def token_scores(hidden: Tensor, head_vd: Tensor, targets: Tensor, bias_v: Tensor | None = None) -> TokenScores:
    """The losses of `nll`, and whether each target is the likeliest word, in one pass; without gradients.

    `hidden` is [..., d], `head_vd` [words, d], `targets` [...], `bias_v` [words]; both results are [...].

        accuracy = token_scores(hidden, model.lm_head.weight, targets).hits.float().mean()
    """
    _check(hidden, head_vd, targets, bias_v)
    flat, target_n, scratch = hidden.flatten(0, -2), targets.flatten().long(), LogitBlock(hidden)
    loss_n, hit_n = scratch.block.new_zeros(len(flat)), torch.zeros_like(target_n, dtype=torch.bool)
    with torch.autocast(hidden.device.type, enabled=False):
        for rows in _blocks(len(flat), scratch.tokens):
            lse_n, target_logit_n, hit_n[rows] = _score_few(
                flat[rows], head_vd, bias_v, target_n[rows], scratch, hits=True
            )
            loss_n[rows] = (lse_n - target_logit_n).where(target_n[rows] != IGNORED, 0)
    return TokenScores(loss_n.view(targets.shape), hit_n.view(targets.shape))


class TokenLossFunction(torch.autograd.Function):
    """Losses block by block; the backward pass computes each block's logits again."""

    @staticmethod
    def forward(ctx: Any, hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None, target_n: Tensor) -> Tensor:
        """The losses; the log-sum-exp is saved for the backward pass."""
        scratch = LogitBlock(hidden_nd)
        lse_n, target_logit_n = scratch.block.new_zeros(2, len(hidden_nd))
        for rows in _blocks(len(hidden_nd), scratch.tokens):
            lse_n[rows], target_logit_n[rows], _ = _score_few(hidden_nd[rows], head_vd, bias_v, target_n[rows], scratch)
        ctx.save_for_backward(hidden_nd, head_vd, bias_v, target_n, lse_n)
        losses: Tensor = (lse_n - target_logit_n).where(target_n != IGNORED, 0)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        """softmax minus the target, block by block."""
        hidden_nd, head_vd, bias_v, target_n, lse_n = ctx.saved_tensors
        by_hidden = torch.zeros_like(hidden_nd, dtype=lse_n.dtype)
        by_head = torch.zeros_like(head_vd, dtype=lse_n.dtype)
        by_bias = None if bias_v is None else torch.zeros_like(bias_v, dtype=lse_n.dtype)
        slope_n, scratch = grads[0].where(target_n != IGNORED, 0), LogitBlock(hidden_nd)
        for rows in _blocks(len(hidden_nd), scratch.tokens):
            for words in _blocks(len(head_vd), scratch.words):
                share = scratch.logits(hidden_nd[rows], head_vd, bias_v, words)
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


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(first, first + size) for first in range(0, length, size)]


class LogitBlock:
    """The memory that every block of logits uses in turn."""

    def __init__(self, hidden_nd: Tensor) -> None:
        self.tokens, self.words = (TOKENS_PER_BLOCK, WORDS_PER_BLOCK) if hidden_nd.device.type == "cpu" else ON_GPU
        self.tokens = max(1, min(self.tokens, math.prod(hidden_nd.shape[:-1])))
        # A product soon leaves the range of float16.
        self.multiplied = torch.float32 if hidden_nd.dtype == torch.float16 else hidden_nd.dtype
        self.block = hidden_nd.new_empty(self.tokens * self.words, dtype=compute_dtype(hidden_nd.dtype))
        self.product = self.block
        if self.multiplied != self.block.dtype:
            self.product = hidden_nd.new_empty(self.tokens * self.words, dtype=self.multiplied)

    def logits(self, hidden_nd: Tensor, head_vd: Tensor, bias_v: Tensor | None, words: slice) -> Tensor:
        """A block of logits: multiplied in the model's precision, summed in at least float32."""
        head_wd = head_vd[words]
        shape = (len(hidden_nd), len(head_wd))
        product, block = (memory[: math.prod(shape)].view(shape) for memory in (self.product, self.block))
        torch.mm(hidden_nd.to(self.multiplied), head_wd.to(self.multiplied).T, out=product)
        if self.product is not self.block:
            block.copy_(product)
        return block if bias_v is None else block.add_(bias_v[words])


def _score_few(
    hidden_nd: Tensor,
    head_vd: Tensor,
    bias_v: Tensor | None,
    target_n: Tensor,
    scratch: LogitBlock,
    *,
    hits: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """For a few tokens the log-sum-exp over all words, the target's logit and, with `hits`, whether that is the first
    of the highest: all from the same rounded blocks.
    """
    lse_n, target_logit_n, highest_n = scratch.block.new_full((3, len(target_n)), -torch.inf)
    hit_n = torch.zeros_like(target_n, dtype=torch.bool)
    for words in _blocks(len(head_vd), scratch.words):
        block = scratch.logits(hidden_nd, head_vd, bias_v, words)
        aim = target_n - words.start
        inside = (aim >= 0) & (aim < block.shape[1])
        target_logit_n = block.gather(1, aim.clamp(0, block.shape[1] - 1)[:, None])[:, 0].where(inside, target_logit_n)
        top_n = block.amax(1)
        if hits:
            hit_n = torch.where(
                top_n > highest_n, inside & _is_first(block, aim, inside & (target_logit_n == top_n)), hit_n
            )
            highest_n = torch.maximum(highest_n, top_n)
        lse_n = torch.logaddexp(lse_n, _logsumexp(block, top_n))
    return lse_n, target_logit_n, hit_n


def _is_first(block: Tensor, aim: Tensor, highest: Tensor) -> Tensor:
    """Whether the target is the first of the highest.

    argmax is slow on a CPU, so only rows whose target is highest use it; a GPU would have to wait for their number.
    """
    if block.device.type != "cpu":
        return highest & (block.argmax(1) == aim)
    first = highest.clone()
    first[highest] = block[highest].argmax(1) == aim[highest]
    return first


def _logsumexp(block: Tensor, highest_n: Tensor) -> Tensor:
    """Of each row, whose highest is known; overwrites the block."""
    finite = torch.finfo(block.dtype)
    highest = highest_n.clamp(finite.min, finite.max)
    return block.sub_(highest[:, None]).mul_(LOG2_E).exp2_().sum(1).log() + highest


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
    devices = {str(tensor.device) for tensor in (hidden, head_vd, targets, bias_v) if tensor is not None}
    if len(devices) > 1:
        raise InvalidValue("hidden, head, targets and bias", "on one device", sorted(devices))
    scored = targets[targets != IGNORED]
    if len(scored) and not 0 <= int(scored.min()) <= int(scored.max()) < len(head_vd):
        rule = f"words of the head (0 to {len(head_vd) - 1}) or {IGNORED}"
        raise InvalidValue("targets", rule, [int(scored.min()), int(scored.max())])
