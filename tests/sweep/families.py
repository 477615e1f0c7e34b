"""Lists of architectures for the sweep. A further list is one more `Family` in FAMILIES.

A family says which architectures it has, how a small model of one is made, and what that reads. Everything else, from
the extensions to the caches, is the same for all families.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf.architectures import NAMES, small
from hf.architectures_with_images import NAMES_WITH_IMAGES, small_with_images

FIRST_MARK = 90  # the first token that stands for images


class Family(NamedTuple):
    """A list of architectures."""

    title: str  # the heading of its table
    names: Sequence[str]  # in the order of the rows
    small: Callable[[str], Any]  # a small model of this name; ValueError or ImportError where transformers makes none
    text: Callable[[Any, int, int], dict[str, Tensor]]  # (model, tokens, seed): what one call of the model reads


def words(model: Any, tokens: int, seed: int) -> dict[str, Tensor]:
    """Random tokens.

    A text is a dict of one row: `input_ids` and what belongs to each token have the shape (1, tokens). Anything else
    (pixels) is read with the first chunk; a batch has the rows' values one after the other.
    """
    vocabulary = min(model.config.get_text_config().vocab_size, FIRST_MARK + 1)
    draw = torch.Generator().manual_seed(seed)
    return {"input_ids": torch.randint(3, vocabulary - 1, (1, tokens), generator=draw)}


CAUSAL = Family("Causal language models", NAMES, small, words)
WITH_IMAGES = Family("Models that read texts with images", NAMES_WITH_IMAGES, small_with_images, words)
FAMILIES = (CAUSAL, WITH_IMAGES)
