"""One forward pass: positions, documents and images of its tokens."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.masking_utils import causal_mask_function

from ropewalk.attention.layout.sequences import SharedLayout
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.inputs import PAD
from ropewalk.hf.probe.capture import RotaryOutput, last_seen
from ropewalk.hf.probe.probed_layer import CachedLayer
from ropewalk.hf.runtime.caches import written_of
from ropewalk.methods.positions import Positions

# Tokens of an image that see each other: the last key that each query sees, noted on the padding mask of a pass.
#
# transformers makes masks before the layers run, sometimes before the part that reads the text. The mask is what
# reaches every layer.
#
# Legend: b batch, i query, j key.


_LAST_SEEN = "_ropewalk_last_seen"  # of a padding mask: the slot of the last key that each query sees


@torch.compiler.disable  # type: ignore[untyped-decorator]
def padding_mask(*, mask_function: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """The padding mask: here the reach decides who sees whom. Tokens of images that see each other are noted on it."""
    if mask_function is causal_mask_function:  # as most are
        return attention_mask
    later = last_seen(mask_function, **kwargs)
    if later is None:
        return attention_mask
    size = (kwargs["batch_size"], kwargs["kv_offset"] + kwargs["kv_length"])
    blank = torch.ones(size, dtype=torch.bool, device=later.device)
    noted = blank if attention_mask is None else attention_mask.clone()
    setattr(noted, _LAST_SEEN, later)
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


# One forward pass: the cache, and the position of the token in each of its slots.
#
# Legend: b batch, j slot.


PASS = "ropewalk_pass"  # the keyword that carries a pass from the model to its layers
STATIC = "use a static schedule, which keeps the model's attention"
# Continuous batching keeps keys in pages, and reads them by attention functions of its own.
PAGES = "cache"  # the keyword with its pages
CONTINUOUS = "transformers' continuous batching runs attention of its own, which would leave the extension out"
STATIC_OR_GENERATE = "use generate, or a static schedule, which keeps the model's attention"
_AXES = "_ropewalk_axes"  # of a cache: the several positions of its tokens
DOCUMENTS = "documents"  # the keyword that says which text of its row a token belongs to


class Axes:
    """The positions of tokens that have several, as the rotary module gets them: [axes, batch, slots].

    A cache keeps those of its keys, which are cached unrotated.
    """

    def __init__(self, before_abj: Tensor | None) -> None:
        self.before_abj = before_abj  # of the slots before this pass, as the cache knows them
        self.at_abj: Tensor | None = None

    def take(self, positions: Tensor, now: ForwardPass) -> None:
        """The positions of this pass; the slots before it are text if the cache knows nothing else."""
        past, before_abj = now.total - now.queries, self.before_abj
        positions_abi = (positions[None] if positions.dim() == 2 else positions).cpu().long()
        if before_abj is None:
            numbers_bj = torch.arange(past)[None] if now.numbers_bj is None else now.numbers_bj[:, :past]
            before_abj = numbers_bj.clamp(min=0).expand(*positions_abi.shape[:2], past)
        # Text that follows an image may come with one position per token, for all axes and all rows.
        sizes = [max(pair) for pair in zip(before_abj.shape, positions_abi.shape, strict=True)][:2]
        self.at_abj = torch.cat([x.expand(*sizes, -1) for x in (before_abj[:, :, :past], positions_abi)], -1)
        if now.cache is not None:
            now.cache.__dict__[_AXES] = self.at_abj

    def of_pairs(self, axes: tuple[int, ...], offset: int) -> Tensor:
        """The position of each pair of the keys from this slot on, [batch, keys, pairs]."""
        if self.at_abj is None:
            sentence = "images have several positions per token, which are not read inside a compiled graph"
            raise InvalidValue.because("position_ids", sentence, remedy="call the model uncompiled")
        if not axes:
            sentence = "tokens of images have several positions in this model, and Ropewalk's attention takes one"
            raise InvalidValue.because("position_ids", sentence, remedy=STATIC)
        return self.at_abj[list(axes), :, offset:].permute(1, 2, 0)


class Rotations:
    """What the rotary modules have computed in a pass, by module and layer type; kept only where a layer needs it."""

    def __init__(self) -> None:
        self.by_call: dict[tuple[nn.Module, str | None], RotaryOutput] = {}


class ForwardPass(NamedTuple):
    """What the layers of one forward pass share. Positions are None where every row begins at 0 without padding."""

    cache: Any | None
    numbers_bj: Tensor | None
    documents_bj: Tensor | None
    total: int  # slots so far, with those of this pass
    queries: int
    places: Sequence[CachedLayer | None]  # of every layer in the cache
    offsets: Sequence[int]  # of every layer: the slot of the first key that its cache returns
    rooms: Sequence[int]  # of every layer: how many keys its cache returns, blank room included
    masked: bool  # whether the caller passed a mask
    wants_weights: bool  # whether the attention weights are returned too
    shared: SharedLayout  # what one layer has computed for all
    drawn: bool  # whether positions are random
    sees_later: bool  # whether tokens of an image see each other
    axes: Axes | None  # of tokens that have several positions, such as those of images
    shifts: frozenset[int] | None  # position ids minus the positions that the cache counts; None without position ids
    rotations: Rotations
    caller_arguments: frozenset[str]  # the names of the arguments that the caller passed
    written_bi: Tensor | None  # which tokens of this pass the model writes; None where it reads all

    def cache_layer(self, layer: int) -> Any:
        """The layer of the cache that holds a layer's keys; None without one."""
        place = self.places[layer]
        if self.cache is None or place is None or place.slot >= len(self.cache.layers):
            return None
        return self.cache.layers[place.slot]

    def keys_of(
        self, layer: int, k_bgjd: Tensor, v_bgjd: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor]:
        """Positions and documents of the keys that a cache returned, and these keys and values without blank room."""
        offset = self.offsets[layer] if self.cache is not None else 0
        room = self.total - offset
        numbers, documents = (
            x if x is None else x[:, offset : self.total] for x in (self.numbers_bj, self.documents_bj)
        )
        if numbers is None and offset:
            numbers = torch.arange(offset, self.total).expand(len(k_bgjd), -1)
        return numbers, documents, k_bgjd[:, :, :room], v_bgjd[:, :, :room]

    def require_numbered(self, positions: Tensor) -> None:
        """Take several positions per token; refuse one that the model computes in a way of its own."""
        if self.axes is not None:
            self.axes.take(positions, self)
            return
        if self.drawn or self.queries == 1 or positions.shape[-1] != self.queries:
            return
        theirs = one_each(positions).cpu()
        ours = torch.arange(self.queries)[None] if self.numbers_bj is None else self.numbers_bj[:, -self.queries :]
        real = (ours[:, 1:] != PAD) & (ours[:, :-1] != PAD)
        if ((theirs.diff(dim=1) != ours.diff(dim=1)) & real).any():
            sentence = f"the model computes position ids of its own, {theirs.tolist()[0][:8]}, for these inputs"
            raise InvalidValue.because("position_ids", sentence, remedy=STATIC)


# The latest pass, for models that pass no keywords to their layers.
CURRENT: ContextVar[ForwardPass | None] = ContextVar("pass", default=None)


def make_pass(
    arguments: dict[str, Any],
    places: Sequence[CachedLayer | None],
    *,
    random: Positions | None = None,
    wants_weights: bool = False,
    begins: Sequence[int] = (0,),
) -> ForwardPass:
    """The pass that the arguments of a base model describe; `random` draws positions where the caller passed none.

    `begins` are the positions of the rows' first slots, as a filled cache knows them.
    """
    batch, queries = size(arguments)
    cache = arguments.get("past_key_values")
    slots = [place.source for place in places if place is not None]
    past = int(cache.get_query_offset(slots[0])) if cache is not None and slots else 0
    total = past + queries
    real = _real(arguments.get("attention_mask"), batch, total)
    axes = _several(arguments.get("position_ids"), cache)
    positions, shifts, documents = arguments.get("position_ids") if axes is None else None, None, None
    numbers = None if real is None or real.all() else (real.long().cumsum(1) - 1).masked_fill(~real, PAD)
    positions = _without_padding(positions, numbers, past, total)
    if arguments.get(DOCUMENTS) is not None:
        numbers, documents = _explicit(positions, arguments[DOCUMENTS], cache)
        cache = None
    elif positions is not None:
        positions = one_each(positions).expand(batch, -1).cpu()
        if cache is None:
            numbers, documents = _read_position_ids(positions, numbers)
        else:
            numbers, shifts = _shift(positions, numbers, total, begins)
    if random is not None and axes is not None:
        sentence = f"{random.name} draws one position per token, and tokens of images have several"
        raise DoesNotFit.because("positions", sentence, remedy="train on text alone, or without it")
    drawn = random is not None and cache is None and arguments.get(DOCUMENTS) is None
    if random is not None and drawn:
        numbers = _draw_positions(
            random, torch.arange(total).repeat(batch, 1) if numbers is None else numbers, documents
        )
    rooms, offsets = zip(*(_room(cache, place, queries, total) for place in places), strict=True)
    sees_later = last_seen_of(arguments.get("attention_mask")) is not None
    caller_arguments = frozenset(arguments)
    return ForwardPass(
        *(cache, numbers, documents, total, queries, places, offsets, rooms),
        *(real is not None, wants_weights, SharedLayout(), drawn, sees_later),
        *(axes, shifts, Rotations(), caller_arguments, written_of(batch, past, total)),
    )


def _room(cache: Any, place: CachedLayer | None, queries: int, total: int) -> tuple[int, int]:
    """How many keys a cache returns, and the slot of the first."""
    if cache is None or place is None:
        return total, 0
    room, offset = cache.get_mask_sizes(queries, place.source)
    return int(room), int(offset)


def _several(positions: Tensor | None, cache: Any) -> Axes | None:
    """The positions of a pass whose tokens have several, or whose cache has such tokens. Others order the tokens."""
    before = None if cache is None else cache.__dict__.get(_AXES)
    if before is not None:
        return Axes(before)
    differ = positions is not None and positions.dim() > 2 and bool((positions != positions[:1]).any())
    return Axes(None) if differ else None


def one_each(positions: Tensor) -> Tensor:
    """One number a token: models that see images number tokens along several axes, all alike for text."""
    return positions if positions.dim() < 3 else positions[0]


def _without_padding(positions: Tensor | None, numbers_bj: Tensor | None, past: int, total: int) -> Tensor | None:
    """Position ids that number the slots, from 0 or later, know nothing of padding: they are counted without it."""
    if positions is None or numbers_bj is None or positions.shape[-1] != total - past:
        return positions
    offsets = positions.cpu() - torch.arange(past, total)
    if (offsets != offsets.flatten()[0]).any():
        return positions
    return (numbers_bj[:, past:] + offsets.flatten()[0]).masked_fill(numbers_bj[:, past:] == PAD, PAD)


def states_numbers(arguments: dict[str, Any]) -> bool:
    """Whether position ids are more than consecutive numbers: then no cache can be continued."""
    positions, mask = arguments.get("position_ids"), arguments.get("attention_mask")
    if arguments.get(DOCUMENTS) is not None:
        return True
    if positions is None or mask is not None:
        return False
    if positions.dim() > 2 and (positions != positions[:1]).any():  # of images
        return False
    return bool((one_each(positions).diff(dim=-1) != 1).any())


def _shift(
    positions_bi: Tensor, numbers_bj: Tensor | None, total: int, begins: Sequence[int]
) -> tuple[Tensor | None, frozenset[int]]:
    """The positions of all slots where position ids do not begin where the cache counts from, and the differences.

    Position ids that are not consecutive are refused with a cache.
    """
    slots_bj = (torch.arange(total) + torch.tensor(begins)[:, None]).clamp(min=PAD)
    counted_bj = slots_bj.expand(len(positions_bi), -1) if numbers_bj is None else numbers_bj
    counted_bi = counted_bj[:, total - positions_bi.shape[1] :]
    real_bi = counted_bi != PAD
    shift_b = (positions_bi - counted_bi).masked_fill(~real_bi, -total).amax(1, keepdim=True)
    if ((positions_bi - counted_bi != shift_b) & real_bi).any():
        remedy = "pass use_cache=False for packed texts and positions with gaps"
        raise InvalidValue("position_ids", "consecutive with a cache", positions_bi.tolist()[0][:8], remedy=remedy)
    shifts = frozenset(shift_b[real_bi.any(1)].flatten().tolist())
    if min(shifts, default=0) < 0:
        rule = "with a cache at least the number of real tokens before"
        raise InvalidValue("position_ids", rule, positions_bi.tolist()[0][:8], remedy="pass an attention_mask")
    if shifts <= {0}:
        return numbers_bj, shifts
    return torch.where(counted_bj == PAD, PAD, counted_bj + shift_b.clamp(min=0)), shifts


def by_name(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, those that it takes by `**` among them."""
    arguments = dict(signature.bind_partial(*args, **kwargs).arguments)
    rest = rest_of(signature)
    return arguments | arguments.pop(rest, {}) if rest else arguments


def rest_of(signature: inspect.Signature) -> str:
    """The name behind `**`, which always stands last; empty where there is none."""
    last = [*signature.parameters.values()][-1:]
    return next((parameter.name for parameter in last if parameter.kind is parameter.VAR_KEYWORD), "")


def size(arguments: dict[str, Any]) -> tuple[int, int]:
    """How many rows and tokens the arguments have."""
    tokens = arguments.get("input_ids")
    tokens = arguments["inputs_embeds"] if tokens is None else tokens
    return tokens.shape[0], tokens.shape[1]


def _real(mask: Any, batch: int, total: int) -> Tensor | None:
    """Which slots hold tokens, by the two-dimensional mask."""
    if isinstance(mask, dict):
        mask = next((part for part in mask.values() if part is not None), None)
    if mask is None:
        return None
    if mask.dim() != 2 or mask.shape[0] != batch or mask.shape[1] < total:
        rule = f"[{batch} rows, {total} tokens so far], with 0 where there is padding"
        raise InvalidValue(
            "attention_mask", rule, tuple(mask.shape), remedy="an extension decides which tokens are visible"
        )
    real: Tensor = (mask[:, :total] != 0).cpu()
    return real


def _explicit(positions: Tensor | None, documents: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
    """Positions and documents, where the caller passes both."""
    if positions is None or positions.shape != documents.shape or cache is not None:
        got = "with a cache" if cache is not None else "without position_ids of the same shape"
        sentence = f"{DOCUMENTS} goes with position_ids and without a cache, but came {got}"
        raise InvalidValue.because(DOCUMENTS, sentence, remedy="pass position_ids of its shape, and no cache")
    return positions.cpu(), documents.cpu()


def _draw_positions(random: Positions, numbers_bj: Tensor, documents_bj: Tensor | None) -> Tensor:
    """Random positions for every text, by torch's generator; positions with gaps were chosen by the caller and stay."""
    texts_bj = torch.zeros_like(numbers_bj) if documents_bj is None else documents_bj
    inside = (texts_bj.diff(dim=1) == 0) & (numbers_bj[:, 1:] != PAD) & (numbers_bj[:, :-1] != PAD)
    if (inside & (numbers_bj.diff(dim=1) != 1)).any():
        return numbers_bj
    drawn_bj = numbers_bj.clone()
    for numbers, texts in zip(drawn_bj, texts_bj, strict=True):
        for text in texts.unique():
            members = (texts == text) & (numbers != PAD)
            numbers[members] = random.number(int(members.sum()), torch.default_generator)
    return drawn_bj


def _read_position_ids(positions: Tensor, numbers: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """What position ids say beyond the mask: packed texts begin again, and positions may have gaps."""
    usual = torch.arange(positions.shape[1]).expand_as(positions) if numbers is None else numbers
    stated = positions.masked_fill(usual == PAD, PAD)
    if torch.equal(stated, usual):
        return numbers, None
    begins = torch.nn.functional.pad((stated.diff(dim=1) <= 0) & (stated[:, :-1] != PAD), (1, 0))
    return stated, begins.long().cumsum(1)
