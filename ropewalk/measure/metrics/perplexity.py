"""Perplexity, and which tokens are key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf import score_tokens
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.checkpoint.tokens import add_begin_tokens
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.probe.rotation import has_rotation
from ropewalk.measure.metrics.intervals import Estimate, mean
from ropewalk.measure.metrics.losses import token_losses

# Perplexities by name: there are several definitions, and all are made from losses per token.
#
#     truncated(L)         the first L tokens of each text, every token after all before it
#     strided(W, S)        windows of W tokens that advance by S; in each window only the new tokens count
#     rolling(W)           strided(W, W): windows that do not overlap, as in lm-evaluation-harness
#
# The perplexity is exp of the mean over all tokens of all texts. The mean over texts, in which short and long texts
# count alike, is a second number. Every token counts once, except the first of a text: the first target of a window is
# predicted from the token before it.
#
# Protocols: Press et al. 2022, arXiv:2108.12409 (strided); EleutherAI/lm-evaluation-harness, loglikelihood_rolling.
# Deviation: jquesnelle/yarn, eval/perplexity.py, takes the unweighted mean over windows, in which the first, long
# window counts as much as 256 new tokens, and puts the token that begins texts at the start of every window.
#
# Legend: b text or window, n token.


BREAKDOWN_MARGIN = 0.25  # nats per token: what every reader notices
LARGEST_LOSS = 700.0  # nats: above it exp overflows, as in the wide interval of two texts


class NamedPerplexity(NamedTuple):
    """A perplexity and its name."""

    name: str
    by_token: Estimate  # the mean over tokens
    by_text: Estimate  # the mean over texts
    tokens: int


def perplexity(name: str, losses: Sequence[Tensor]) -> NamedPerplexity:
    """From the losses per token of each text; intervals are over texts."""
    means = [float(of_text.double().mean()) for of_text in losses]
    counts = [of_text.numel() for of_text in losses]
    return NamedPerplexity(name, perplexity_of_loss(mean(means, counts)), perplexity_of_loss(mean(means)), sum(counts))


def truncated_perplexity(
    model: nn.Module, texts: Sequence[Tensor], lengths: Sequence[int], *, one_pass: bool | None = None
) -> dict[int, NamedPerplexity]:
    """At each length, from texts [tokens] of at least the longest.

    One pass serves all lengths if losses do not depend on the text after them (True requires that), else each length
    has its own pass.
    """
    _require_room(texts, max(lengths))
    if one_pass:
        require_still(model)
    if one_pass is None:
        one_pass = not depends_on_length(model)
    if one_pass:
        whole = [score_tokens(model, text[None, : max(lengths)]).losses[0] for text in texts]
        losses = {length: [of_text[: length - 1] for of_text in whole] for length in lengths}
    else:
        losses = {length: [_read_whole(model, text[:length]) for text in texts] for length in lengths}
    return {length: perplexity(f"truncated({length})", of_texts) for length, of_texts in losses.items()}


def strided_perplexity(model: nn.Module, texts: Sequence[Tensor], *, window: int, stride: int) -> NamedPerplexity:
    """By windows of `window` tokens that advance by `stride`."""
    losses = [strided_losses(model, text, window=window, stride=stride) for text in texts]
    return perplexity(f"strided({window}, {stride})", losses)


def rolling_perplexity(model: nn.Module, texts: Sequence[Tensor], *, window: int) -> NamedPerplexity:
    """By windows that do not overlap."""
    losses = [strided_losses(model, text, window=window, stride=window) for text in texts]
    return perplexity(f"rolling({window})", losses)


def strided_losses(model: nn.Module, text: Tensor, *, window: int, stride: int, begin: Sequence[int] = ()) -> Tensor:
    """The loss of each token of [tokens] but the first, after at most `window` tokens.

    Every window begins with the tokens `begin`, which count.
    """
    if not 1 <= stride <= window:
        raise InvalidValue("stride", f"from 1 to the window ({window})", stride)
    room = window - len(begin)  # tokens of the text in a window
    _require_room([text], room + 1)
    ends = [*range(room, len(text) - 1, min(stride, room)), len(text) - 1]  # the last target of each window
    rows = torch.stack([add_begin_tokens(text[: end + 1], begin, window + 1) for end in ends])
    losses = token_losses(model, rows).losses_bn
    news = [room, *(end - before for before, end in pairwise(ends))]
    return torch.cat([row[-new:] for row, new in zip(losses, news, strict=True)])


def depends_on_length(model: nn.Module) -> bool:
    """Whether the loss of a token changes when text is added after it.

    It does not under our extensions: rotary tables are static or belong to the row, reaches and scales to the query. It
    may under the checkpoint's own schedule (dynamic and longrope of transformers); if that is unknown, the answer is
    yes.
    """
    host = host_of(model)
    if handle_of(host) is not None or not has_rotation(host):
        return False
    try:
        return any(layer.varies for layer in probe(host))
    except DoesNotFit:
        return True


def require_still(model: nn.Module) -> None:
    """Refuse one pass for several lengths if losses depend on the length."""
    if depends_on_length(model):
        sentence = "one_pass is impossible: the checkpoint's own schedule depends on the length (dynamic or longrope)"
        raise DoesNotFit.because("one_pass", sentence, remedy="leave it out, or extend by dynamic_ntk")


def breakdown(excess_n: Tensor, *, width: int, margin: float = BREAKDOWN_MARGIN) -> int | None:
    """The first position at which the last `width` tokens are above a margin on average; None if there is none.

    `excess_n` is the loss at each position minus that of the same token within the trained length, so that difficult
    tokens cancel out.
    """
    if not 1 <= width <= len(excess_n):
        raise InvalidValue("width", f"from 1 to the {len(excess_n)} positions", width)
    sums = torch.nn.functional.pad(excess_n.double().cumsum(0), (1, 0))
    above = (sums[width:] - sums[:-width] > margin * width).nonzero()
    return int(above[0]) + width - 1 if len(above) else None


def _read_whole(model: nn.Module, text: Tensor) -> Tensor:
    """In one chunk: in several, a schedule that depends on the length would see the chunk's."""
    return score_tokens(model, text[None], piece=len(text)).losses[0]


def _require_room(texts: Sequence[Tensor], least: int) -> None:
    shortest = min((len(text) for text in texts), default=0)
    if shortest < least:
        remedy = "give longer texts, or ask for a shorter length or window"
        raise DoesNotFit("texts", f"at least one, of at least {least} tokens each", shortest, remedy=remedy)


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
