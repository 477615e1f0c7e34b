"""Key tokens: the tokens of a text that a model predicts with far context and not without it.

    n is a key token   if   near_n - far_n > gain   and   far_n < most

    far_n, near_n      loss of token n after its far context, and after the near end of it alone
    gain, most         thresholds in nats

A reference model fixes them once, so that what is judged cannot choose its tokens.

Source: Fang et al. 2024, arXiv:2410.23771 (LongPPL), both thresholds 2; its longppl.py, find_key_token. Deviation: the
last window of a text is as long as the others, there it is cut short.

Legend: n token but the first, which is not predicted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit
from ropewalk.measure.metrics.perplexity import strided_losses

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
