"""One forward pass: the cache, and the number of every token in every slot of it.

Legend: b batch, j slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.sharing import Shared
from ropewalk.errors import InvalidValue
from ropewalk.inputs import PAD
from ropewalk.positions import Positions

PASS = "ropewalk_pass"  # the keyword that carries a pass from the model to its layers
DOCUMENTS = "documents"  # the keyword that says which text of its row a token belongs to, where numbers do not say it


class Pass(NamedTuple):
    """What the layers of one forward pass share. Numbers are nothing where every row begins at 0 and has no padding."""

    cache: Any | None
    numbers_bj: Tensor | None
    documents_bj: Tensor | None
    total: int  # slots so far, those of this pass included
    offsets: Sequence[int]  # of each layer's cache: the slot of the first key it gives
    masked: bool  # whether a mask was given
    weighing: bool  # whether the weights of attention are wanted as well
    shared: Shared  # what one layer has worked out for all

    def seen(self, layer: int, k_bgjd: Tensor, v_bgjd: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:
        """The numbers and documents of the keys that a layer has been given, and those keys without blank room."""
        offset = self.offsets[layer] if self.cache is not None else 0
        room = self.total - offset
        numbers, documents = (
            x if x is None else x[:, offset : self.total] for x in (self.numbers_bj, self.documents_bj)
        )
        if numbers is None and offset:
            numbers = torch.arange(offset, self.total).expand(len(k_bgjd), -1)
        return numbers, documents, k_bgjd[:, :, :room], v_bgjd[:, :, :room]


# The latest pass, for models that hand no keywords down to their layers.
CURRENT: ContextVar[Pass | None] = ContextVar("pass", default=None)


def make_pass(given: dict[str, Any], layers: int, *, random: Positions | None = None, weighing: bool = False) -> Pass:
    """The pass that a base model's arguments describe; `random` numbers texts that nobody has numbered."""
    batch, queries = size(given)
    cache = given.get("past_key_values")
    past = int(cache.get_query_offset()) if cache is not None else 0
    total = past + queries
    real = _real(given.get("attention_mask"), batch, total)
    offsets = [int(cache.get_mask_sizes(queries, layer)[1]) for layer in range(layers)] if cache is not None else []
    numbers, documents = None, None
    if real is not None and not real.all():
        numbers = (real.long().cumsum(1) - 1).masked_fill(~real, PAD)
    positions = given.get("position_ids")
    told = given.get(DOCUMENTS)
    if told is not None:
        numbers, documents = _told(positions, told, cache)
        return Pass(None, numbers, documents, total, offsets, real is not None, weighing, Shared())
    if positions is not None:
        positions = positions.expand(batch, -1).cpu()
        if cache is None:
            numbers, documents = _stated(positions, numbers)
        else:
            _require_consecutive(positions, None if real is None else real[:, past:])
    if random is not None and cache is None:
        numbers = _drawn(random, torch.arange(total).repeat(batch, 1) if numbers is None else numbers, documents)
    return Pass(cache, numbers, documents, total, offsets, real is not None, weighing, Shared())


def states_numbers(given: dict[str, Any]) -> bool:
    """Whether position ids say more than that tokens follow each other: then there is no reading on."""
    positions, mask = given.get("position_ids"), given.get("attention_mask")
    if given.get(DOCUMENTS) is not None:
        return True
    if positions is None or mask is not None:
        return False
    return bool((positions.diff(dim=-1) != 1).any())


def _require_consecutive(positions_bi: Tensor, real_bi: Tensor | None) -> None:
    """Refuse position ids that a cache would not follow."""
    gaps = positions_bi.diff(dim=1) != 1
    if real_bi is not None:
        gaps &= real_bi[:, 1:] & real_bi[:, :-1]
    if gaps.any():
        remedy = "pass use_cache=False for packed texts and numbers with gaps"
        raise InvalidValue(
            "position_ids", "one after the other with a cache", positions_bi.tolist()[0][:8], remedy=remedy
        )


def size(given: dict[str, Any]) -> tuple[int, int]:
    """How many rows and tokens come in."""
    tokens = given.get("input_ids")
    tokens = given["inputs_embeds"] if tokens is None else tokens
    return tokens.shape[0], tokens.shape[1]


def _real(mask: Any, batch: int, total: int) -> Tensor | None:
    """Which slots hold tokens, as the two-dimensional mask says."""
    if isinstance(mask, dict):
        mask = next((each for each in mask.values() if each is not None), None)
    if mask is None:
        return None
    if mask.dim() != 2 or mask.shape[0] != batch or mask.shape[1] < total:
        rule = f"[{batch} rows, {total} tokens so far], with 0 where there is padding"
        raise InvalidValue(
            "attention_mask", rule, tuple(mask.shape), remedy="say which tokens are seen by an extension"
        )
    real: Tensor = (mask[:, :total] != 0).cpu()
    return real


def _told(positions: Tensor | None, documents: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
    """Numbers and documents as somebody gives both: nothing is read into the numbers."""
    if positions is None or positions.shape != documents.shape or cache is not None:
        got = "with a cache" if cache is not None else "without position_ids of the same shape"
        raise InvalidValue(DOCUMENTS, "given with position_ids and without a cache", got, remedy="leave the cache out")
    return positions.cpu(), documents.cpu()


def _drawn(random: Positions, numbers_bj: Tensor, documents_bj: Tensor | None) -> Tensor:
    """Every text numbered anew by torch's generator; numbers that leave gaps were given on purpose and stay."""
    texts_bj = torch.zeros_like(numbers_bj) if documents_bj is None else documents_bj
    inside = (texts_bj.diff(dim=1) == 0) & (numbers_bj[:, 1:] != PAD) & (numbers_bj[:, :-1] != PAD)
    if (inside & (numbers_bj.diff(dim=1) != 1)).any():
        return numbers_bj
    drawn_bj = numbers_bj.clone()
    for numbers, texts in zip(drawn_bj, texts_bj, strict=True):
        for text in texts.unique():
            own = (texts == text) & (numbers != PAD)
            numbers[own] = random.number(int(own.sum()), torch.default_generator)
    return drawn_bj


def _stated(positions: Tensor, numbers: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """What position ids say beyond the mask: texts packed into a row begin anew, and numbers may leave gaps."""
    usual = torch.arange(positions.shape[1]).expand_as(positions)
    if numbers is not None or torch.equal(positions, usual):
        return numbers, None
    begins = torch.nn.functional.pad(positions.diff(dim=1) <= 0, (1, 0))
    return positions, begins.long().cumsum(1)
