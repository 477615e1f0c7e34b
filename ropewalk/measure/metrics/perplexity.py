"""Perplexity, and which tokens are key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.checkpoint.tokens import add_begin_tokens
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.metrics.losses import token_losses

# Perplexities by name: there are several definitions, and all are made from losses per token.
#
#     truncated(L)         the first L tokens of each text, every token after all before it
#     strided(W, S)        windows of W tokens that advance by S; in each window only the new tokens count
#     rolling(W)           strided(W, W): windows that do not overlap, as in lm-evaluation-harness
#
# Every token counts once, except the first of a text: the first target of a window is predicted from the token before
# it.
#
# Protocols: Press et al. 2022, arXiv:2108.12409 (strided); EleutherAI/lm-evaluation-harness, loglikelihood_rolling.
# Deviation: jquesnelle/yarn, eval/perplexity.py, takes the unweighted mean over windows, in which the first, long
# window counts as much as 256 new tokens, and puts the token that begins texts at the start of every window.
#
# Legend: b text or window, n token.


BREAKDOWN_MARGIN = 0.25  # nats per token: what every reader notices
LARGEST_LOSS = 700.0  # nats: above it exp overflows, as in the wide interval of two texts


def strided_losses(model: nn.Module, text: Tensor, *, window: int, stride: int, begin: Sequence[int] = ()) -> Tensor:
    """The loss of each token of [tokens] but the first, after at most `window` tokens.

    Every window begins with the tokens `begin`, which count.
    """
    if not 1 <= stride <= window:
        raise InvalidValue("stride", f"from 1 to the window ({window})", stride)
    room = window - len(begin)  # tokens of the text in a window
    if len(text) <= room:
        remedy = "give a longer text, or ask for a shorter window"
        raise DoesNotFit("text", f"at least {room + 1} tokens", len(text), remedy=remedy)
    ends = [*range(room, len(text) - 1, min(stride, room)), len(text) - 1]  # the last target of each window
    rows = torch.stack([add_begin_tokens(text[: end + 1], begin, window + 1) for end in ends])
    losses = token_losses(model, rows).losses_bn
    news = [room, *(end - before for before, end in pairwise(ends))]
    return torch.cat([row[-new:] for row, new in zip(losses, news, strict=True)])


def breakdown(excess_n: Tensor, *, width: int, margin: float = BREAKDOWN_MARGIN) -> int | None:
    """The first position at which the last `width` tokens are above a margin on average; None if there is none.

    `excess_n` is the loss at each position minus that of the same token within the trained length, so that difficult
    tokens cancel out; one that is no number is above any margin.
    """
    if not 1 <= width <= len(excess_n):
        raise InvalidValue("width", f"from 1 to the {len(excess_n)} positions", width)
    known_n = excess_n.double().nan_to_num(nan=math.inf, posinf=math.inf)
    above = (known_n.unfold(0, width, 1).mean(-1) > margin).nonzero()
    return int(above[0]) + width - 1 if len(above) else None


def perplexity_of_loss(loss: Estimate) -> Estimate:
    """A mean loss as perplexity, with its interval."""
    value, low, high = (math.exp(nats) if nats < LARGEST_LOSS else math.inf for nats in loss[:3])
    return Estimate(value, low, high, loss.of)


# Key tokens: the tokens of a text that a model predicts with far context and not without it.
#
#     n is a key token   if   near_n - far_n > gain   and   far_n < most
#
#     far_n, near_n      loss of token n after its far context, and after the near end of it alone
#     gain, most         thresholds in nats
#
# A reference model fixes them once, so that what is judged cannot choose its tokens.
#
# Source: Fang et al. 2024, arXiv:2410.23771 (LongPPL), both thresholds 2; its longppl.py, find_key_token. Deviation:
# the last window of a text is as long as the others, there it is cut short.
#
# Legend: n token but the first, which is not predicted.


GAIN = 2.0  # nats
KEY_LOSS = 2.0  # nats


def is_key(far_n: Tensor, near_n: Tensor, *, gain: float = GAIN, most: float = KEY_LOSS) -> Tensor:
    """Which tokens are key tokens, by their losses.

    far, near = torch.tensor([0.5, 0.5, 2.5]), torch.tensor([3.0, 2.0, 9.0])
    is_key(far, near)  # the first: the second gains too little, the third is not predicted
    """
    return (near_n - far_n > gain) & (far_n < most)


def key_tokens(
    model: nn.Module,
    text: Tensor,
    *,
    near: int,
    far: int | None = None,
    advance: int | None = None,
    gain: float = GAIN,
    most: float = KEY_LOSS,
    begin: Sequence[int] = (),
) -> Tensor:
    """Which tokens of a text [tokens] are key tokens of a model as it stands: [tokens - 1], without the first.

        key_tokens(model, ids, near=64)           # predicted with the whole text, not with the last 64 tokens
        key_tokens(model, ids, near=64, far=512)  # for a model that reads at most 512

    Windows advance by `advance` tokens, by default a quarter of `near`: a token has `near` to `near + advance - 1`
    tokens before it. Windows of `far` tokens advance by a quarter of it; without `far` one pass reads the whole text.
    Every window begins with the tokens `begin`, which count; without `far` they come before the text.
    """
    whole, step = len(text) - 1, advance or max(1, near // 4)
    widest, most_read = near + step - 1, whole + len(begin)
    longest = min(far or most_read, most_read)
    if widest >= longest:
        sentence = f"the near context, up to {widest} tokens, must be shorter than the far one, {longest}"
        raise DoesNotFit.because("near", sentence, remedy="shorten it, or take longer texts")
    near_n = strided_losses(model, text, window=widest, stride=step, begin=begin)
    far_n = strided_losses(model, text, window=longest, stride=max(1, longest // 4), begin=begin)
    read = torch.arange(whole, device=near_n.device) >= near - 1  # earlier ones have no farther context
    return is_key(far_n, near_n, gain=gain, most=most) & read
