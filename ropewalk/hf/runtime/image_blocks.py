"""Tokens of an image that see each other: the last key that each query sees, noted on the padding mask of a pass.

transformers makes masks before the layers run, sometimes before the part that reads the text. The mask is what reaches
every layer.

Legend: b batch, i query, j key.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_LAST_SEEN = "_ropewalk_last_seen"  # of a padding mask: the slot of the last key that each query sees


def with_last_seen(mask_bj: Tensor, last_seen_bi: Tensor) -> Tensor:
    """A copy of the mask with the note."""
    noted = mask_bj.clone()
    setattr(noted, _LAST_SEEN, last_seen_bi)
    return noted


def last_seen_of(mask: Any) -> Tensor | None:
    """The note on a mask, or on one of several."""
    masks = mask.values() if isinstance(mask, dict) else [mask]
    return next((noted for part in masks if (noted := getattr(part, _LAST_SEEN, None)) is not None), None)


def last_seen_positions(last_seen_bi: Tensor, numbers_bj: Tensor | None, keys: int) -> Tensor:
    """The position of the last key that the token of each key sees, [batch, keys]; earlier tokens see up to their own.

    Padding after an image has no position: the last token before it counts.
    """
    last_seen_bi = last_seen_bi.cpu().clamp(max=keys - 1)
    batch = len(last_seen_bi)
    numbers_bj = torch.arange(keys).expand(batch, -1) if numbers_bj is None else numbers_bj.expand(batch, -1)
    reached_bi = numbers_bj.cummax(1).values.gather(1, last_seen_bi)
    before = keys - last_seen_bi.shape[1]
    return torch.cat([numbers_bj[:, :before], torch.maximum(numbers_bj[:, before:], reached_bi)], 1)
