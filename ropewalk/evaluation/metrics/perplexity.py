"""Perplexities by name: one checkpoint and one text have half a dozen of them, all made from losses per token.

    truncated(L)         the first L tokens of each text, every one given all before it
    strided(W, S)        windows of W tokens that move on by S; of each window the new tokens count
    rolling(W)           strided(W, W): windows that do not overlap, as lm-evaluation-harness reads

Each is exp of the mean over all tokens of all texts; the mean over texts of their means, in which a short text counts
as much as a long one, stands beside it under its own name. No token counts twice, and none but a text's first is left
out: a window's first target is told by the token before it.

Protocols: Press et al. 2022, arXiv:2108.12409 (strided); EleutherAI/lm-evaluation-harness, loglikelihood_rolling.
Deviation: jquesnelle/yarn, eval/perplexity.py, takes the unweighted mean over windows, in which the first, long one
counts as much as 256 new tokens, and begins every window anew with the token that begins texts.

Legend: b text or window, n token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.evaluation.metrics.intervals import Estimate, mean
from ropewalk.evaluation.metrics.losses import token_losses
from ropewalk.hf import score_tokens
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.probe.rotary import probe, turns

MARGIN = 0.25  # nats per token: what every reader sees
LARGEST = 700.0  # nats whose perplexity is a number: the interval of two texts may be wider


class NamedPerplexity(NamedTuple):
    """A perplexity with what it is called."""

    name: str
    by_token: Estimate  # every token counts alike
    by_text: Estimate  # every text does
    tokens: int


def perplexity(name: str, losses: Sequence[Tensor]) -> NamedPerplexity:
    """Of the losses per token of each text; intervals are over texts."""
    means = [float(each.double().mean()) for each in losses]
    counts = [each.numel() for each in losses]
    return NamedPerplexity(name, exponential(mean(means, counts)), exponential(mean(means)), sum(counts))


def truncated(
    model: nn.Module, texts: Sequence[Tensor], lengths: Sequence[int], *, one_pass: bool | None = None
) -> dict[int, NamedPerplexity]:
    """At each length, from texts [tokens] of the longest or more.

    By one pass where the model stands still (asked for with True, refused elsewhere), else by one for each length.
    """
    _require_room(texts, max(lengths))
    if one_pass:
        require_still(model)
    if one_pass is None:
        one_pass = not depends_on_length(model)
    if one_pass:
        whole = [score_tokens(model, text[None, : max(lengths)]).losses[0] for text in texts]
        losses = {length: [each[: length - 1] for each in whole] for length in lengths}
    else:
        losses = {length: [_read_whole(model, text[:length]) for text in texts] for length in lengths}
    return {length: perplexity(f"truncated({length})", own) for length, own in losses.items()}


def strided(model: nn.Module, texts: Sequence[Tensor], *, window: int, stride: int) -> NamedPerplexity:
    """By windows of so many tokens, each so many further on than the last."""
    losses = [strided_losses(model, text, window=window, stride=stride) for text in texts]
    return perplexity(f"strided({window}, {stride})", losses)


def rolling(model: nn.Module, texts: Sequence[Tensor], *, window: int) -> NamedPerplexity:
    """By windows that do not overlap."""
    losses = [strided_losses(model, text, window=window, stride=window) for text in texts]
    return perplexity(f"rolling({window})", losses)


def strided_losses(model: nn.Module, text: Tensor, *, window: int, stride: int) -> Tensor:
    """The loss of each token of [tokens] but the first, given at most `window` before it."""
    if not 1 <= stride <= window:
        raise InvalidValue("stride", f"from 1 to the window ({window})", stride)
    _require_room([text], window + 1)
    ends = [*range(window, len(text) - 1, stride), len(text) - 1]  # of each window: its last target
    rows = torch.stack([text[end - window : end + 1] for end in ends])
    losses = token_losses(model, rows).losses_bn
    news = [window, *(end - before for before, end in pairwise(ends))]
    return torch.cat([row[-new:] for row, new in zip(losses, news, strict=True)])


def depends_on_length(model: nn.Module) -> bool:
    """Whether a token's loss changes when text is added behind it.

    Under no extension it does: tables are static or belong to the row (dynamic ones too), reaches and scales to the
    query. Under a schedule of the model's own it may (transformers' dynamic and longrope), and where that cannot be
    told it is taken to.
    """
    host = host_of(model)
    if handle_of(host) is not None or not turns(host):
        return False
    try:
        return any(layer.varies for layer in probe(host))
    except DoesNotFit:
        return True


def require_still(model: nn.Module) -> None:
    """Refuse one pass for several lengths where each has numbers of its own."""
    if depends_on_length(model):
        rule = "left out where the model's own schedule changes with the longest text of a batch (dynamic or longrope)"
        raise DoesNotFit("one_pass", rule, True, remedy="read each length by itself, or extend by dynamic_ntk")


def breakdown(excess_n: Tensor, *, width: int, margin: float = MARGIN) -> int | None:
    """The first position by which the last `width` tokens have lost more than a margin each; nothing if none has.

    `excess_n` is by how much the loss at each position is above that of the same token at the trained length: what is
    hard to tell is so in both, and falls out.
    """
    if not 1 <= width <= len(excess_n):
        raise InvalidValue("width", f"from 1 to the {len(excess_n)} positions", width)
    sums = torch.nn.functional.pad(excess_n.double().cumsum(0), (1, 0))
    above = (sums[width:] - sums[:-width] > margin * width).nonzero()
    return int(above[0]) + width - 1 if len(above) else None


def _read_whole(model: nn.Module, text: Tensor) -> Tensor:
    """In one piece: in several, a schedule that changes would be that of each piece."""
    return score_tokens(model, text[None], piece=len(text)).losses[0]


def _require_room(texts: Sequence[Tensor], least: int) -> None:
    shortest = min((len(text) for text in texts), default=0)
    if shortest < least:
        remedy = "name longer texts, or ask for a shorter length or window"
        raise DoesNotFit("texts", f"at least one, each of at least {least} tokens", shortest, remedy=remedy)


def exponential(found: Estimate) -> Estimate:
    """A mean loss as perplexity, with its interval."""
    value, low, high = (math.exp(each) if each < LARGEST else math.inf for each in found[:3])
    return Estimate(value, low, high, found.of)
