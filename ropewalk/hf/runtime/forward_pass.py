"""One forward pass: the cache, and the number of every token in every slot of it.

Legend: b batch, j slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.layout.shared import SharedLayout
from ropewalk.errors import InvalidValue
from ropewalk.hf.probe.cache_contents import CachedLayer
from ropewalk.inputs import PAD
from ropewalk.positions import Positions

PASS = "ropewalk_pass"  # the keyword that carries a pass from the model to its layers
STATIC = "extend by a static schedule, which keeps the model's own attention"
DOCUMENTS = "documents"  # the keyword that says which text of its row a token belongs to, where numbers do not say it


class ForwardPass(NamedTuple):
    """What the layers of one forward pass share. Numbers are nothing where every row begins at 0 and has no padding."""

    cache: Any | None
    numbers_bj: Tensor | None
    documents_bj: Tensor | None
    total: int  # slots so far, those of this pass included
    queries: int
    places: Sequence[CachedLayer | None]  # of each layer in the cache
    offsets: Sequence[int]  # of each layer's cache: the slot of the first key it gives
    masked: bool  # whether a mask was given
    weighing: bool  # whether the weights of attention are wanted as well
    shared: SharedLayout  # what one layer has worked out for all
    drawn: bool  # whether numbers were drawn at random
    shifts: frozenset[int] | None  # by how much stated numbers exceed those that a cache counts; nothing if unstated
    told: frozenset[str]  # the names of what the model's caller gave

    def held(self, layer: int) -> Any:
        """The layer of the cache where a layer's own keys stand."""
        place = self.places[layer] if self.cache is not None else None
        return _layer_at(self.cache, place.slot) if place else None

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

    def require_numbered(self, positions: Tensor) -> None:
        """Refuse position ids that the model itself makes of what it was given, such as those of images."""
        if self.drawn or self.queries == 1 or positions.shape[-1] != self.queries:
            return
        theirs = one_each(positions).cpu()
        ours = torch.arange(self.queries)[None] if self.numbers_bj is None else self.numbers_bj[:, -self.queries :]
        real = (ours[:, 1:] != PAD) & (ours[:, :-1] != PAD)
        if ((theirs.diff(dim=1) != ours.diff(dim=1)) & real).any():
            raise InvalidValue(
                "position_ids", "those that the tokens' places say", theirs.tolist()[0][:8], remedy=STATIC
            )


# The latest pass, for models that hand no keywords down to their layers.
CURRENT: ContextVar[ForwardPass | None] = ContextVar("pass", default=None)


def make_pass(
    given: dict[str, Any],
    places: Sequence[CachedLayer | None],
    *,
    random: Positions | None = None,
    weighing: bool = False,
    begins: Sequence[int] = (0,),
) -> ForwardPass:
    """The pass that a base model's arguments describe; `random` numbers texts that nobody has numbered.

    `begins` are the numbers of the rows' first slots, as a cache that is read on through knows them.
    """
    batch, queries = size(given)
    cache = given.get("past_key_values")
    past = _past(cache, places)
    total = past + queries
    real = _real(given.get("attention_mask"), batch, total)
    positions, shifts, documents = given.get("position_ids"), None, None
    numbers = None if real is None or real.all() else (real.long().cumsum(1) - 1).masked_fill(~real, PAD)
    if given.get(DOCUMENTS) is not None:
        numbers, documents = _told(positions, given[DOCUMENTS], cache)
        cache = None
    elif positions is not None:
        positions = one_each(positions).expand(batch, -1).cpu()
        if cache is None:
            numbers, documents = _stated(positions, numbers)
        else:
            numbers, shifts = _shifted(positions, numbers, total, begins)
    drawn = random is not None and cache is None and given.get(DOCUMENTS) is None
    if random is not None and drawn:
        numbers = _drawn(random, torch.arange(total).repeat(batch, 1) if numbers is None else numbers, documents)
    offsets = [_offset(cache, place, queries) for place in places]
    told = frozenset(given)
    return ForwardPass(
        *(cache, numbers, documents, total, queries, places, offsets),
        *(real is not None, weighing, SharedLayout(), drawn, shifts, told),
    )


def _past(cache: Any, places: Sequence[CachedLayer | None]) -> int:
    """How many tokens the cache has read, as the first layer that has a place in it says."""
    slots = [place.source for place in places if place is not None]
    return int(cache.get_query_offset(slots[0])) if cache is not None and slots else 0


def _offset(cache: Any, place: CachedLayer | None, queries: int) -> int:
    return int(cache.get_mask_sizes(queries, place.source)[1]) if cache is not None and place is not None else 0


def _layer_at(cache: Any, slot: int) -> Any:
    return cache.layers[slot] if slot < len(cache.layers) else None


def one_each(positions: Tensor) -> Tensor:
    """One number a token: models that see images number tokens along several axes, all alike for text."""
    if positions.dim() < 3:
        return positions
    if (positions != positions[:1]).any():
        got = f"{len(positions)} that differ, as those of images do"
        raise InvalidValue("position_ids", "one number a token under attention of ours", got, remedy=STATIC)
    return positions[0]


def states_numbers(given: dict[str, Any]) -> bool:
    """Whether position ids say more than that tokens follow each other: then there is no reading on."""
    positions, mask = given.get("position_ids"), given.get("attention_mask")
    if given.get(DOCUMENTS) is not None:
        return True
    if positions is None or mask is not None:
        return False
    return bool((one_each(positions).diff(dim=-1) != 1).any())


def _shifted(
    positions_bi: Tensor, numbers_bj: Tensor | None, total: int, begins: Sequence[int]
) -> tuple[Tensor | None, frozenset[int]]:
    """The numbers of all slots where position ids begin elsewhere than a cache counts from, and by how much they do.

    Position ids that a cache would not follow, one after the other, are refused.
    """
    slots_bj = (torch.arange(total) + torch.tensor(begins)[:, None]).clamp(min=PAD)
    counted_bj = slots_bj.expand(len(positions_bi), -1) if numbers_bj is None else numbers_bj
    counted_bi = counted_bj[:, total - positions_bi.shape[1] :]
    real_bi = counted_bi != PAD
    shift_b = (positions_bi - counted_bi).masked_fill(~real_bi, -total).amax(1, keepdim=True)
    if ((positions_bi - counted_bi != shift_b) & real_bi).any():
        remedy = "pass use_cache=False for packed texts and numbers with gaps"
        raise InvalidValue(
            "position_ids", "one after the other with a cache", positions_bi.tolist()[0][:8], remedy=remedy
        )
    shifts = frozenset(shift_b[real_bi.any(1)].flatten().tolist())
    if min(shifts, default=0) < 0:
        rule = "at least the number of real tokens before with a cache"
        raise InvalidValue("position_ids", rule, positions_bi.tolist()[0][:8], remedy="pass an attention_mask")
    if shifts <= {0}:
        return numbers_bj, shifts
    return torch.where(counted_bj == PAD, PAD, counted_bj + shift_b.clamp(min=0)), shifts


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
    usual = torch.arange(positions.shape[1]).expand_as(positions) if numbers is None else numbers
    stated = positions.masked_fill(usual == PAD, PAD)
    if torch.equal(stated, usual):
        return numbers, None
    begins = torch.nn.functional.pad((stated.diff(dim=1) <= 0) & (stated[:, :-1] != PAD), (1, 0))
    return stated, begins.long().cumsum(1)
