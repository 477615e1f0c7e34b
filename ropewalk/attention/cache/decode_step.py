"""One token in every row: what turns it, which places of which shelf it sees. Made once, used by every layer.

Legend: b batch (1 where all rows are alike), h query head, g key head, r query heads of one key head, n place.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.cache.kv_buffers import KVBuffer
from ropewalk.attention.cache.session import Session, Stage
from ropewalk.attention.rotation.precision import compute_dtype
from ropewalk.attention.rotation.rotate import Rotation, expand_rotation


class BufferRead(NamedTuple):
    """Places of a shelf that the query sees by one span."""

    shelf: int
    asking: int
    place: slice
    mask_bgrn: Tensor | None = None


class DecodeStep(NamedTuple):
    """How the token is answered. Turns are those of query and key together, without repetition."""

    scale_bhnd: Tensor | None
    turns: list[Rotation | None]
    taking: list[tuple[int, int]]  # the shelves that take the token, and by which turn
    stage: Stage | None
    reads: list[BufferRead]


def decode_step(session: Session, count: int, dtype: torch.dtype, device: torch.device) -> DecodeStep | None:
    """The step of the token at this slot, made once for all layers; nothing where a row has none or a decay forbids."""
    key = (count, dtype, device)
    if session.latest is None or session.latest[0] != key:
        i = session.numbers(torch.tensor([count]))
        made = _step(session, i, dtype, device) if _carries(session, i) else None
        session.latest = key, made
        return made
    latest: DecodeStep | None = session.latest[1]
    return latest


def _carries(session: Session, i: Tensor) -> bool:
    """A token in every row; and a decay counts from the query, so that has to stand at its own place."""
    if int(i.min()) < 0:
        return False
    return not session.decays or all(bool((span.q_at(i) == i).all()) for span in session.spans)


def _step(session: Session, i: Tensor, dtype: torch.dtype, device: torch.device) -> DecodeStep:
    count, numbers = int(i[0]) - session.begins[0], i[:, 0]
    stage = session.stage(numbers.tolist())
    views = [view for n in range(len(session.spans)) for view in _views(session, n, numbers, count)]
    places = _Places(keys_differ=session.decays)
    asking = [places.index(session.spans[view.span].q_at(i), keys=False) for view in views]
    taking = [
        (n, places.index(session.k_at[n](i), keys=True))
        for n, shelf in enumerate(session.shelves)
        if shelf.takes(count)
    ]
    seen = zip(views, asking, _masks(session, views, numbers, count), strict=True)
    return DecodeStep(
        scale_bhnd=_scale(session, i, device),
        turns=_turns(session, places, stage, dtype, device),
        taking=taking,
        stage=stage,
        reads=[_read(session, view, n, mask, dtype, device) for view, n, mask in seen],
    )


class _Places:
    """Places to turn to, each once; a decay turns keys otherwise than queries."""

    def __init__(self, *, keys_differ: bool) -> None:
        self.keys_differ = keys_differ
        self.found: list[tuple[Tensor, bool]] = []

    def index(self, at_bn: Tensor, *, keys: bool) -> int:
        """Which of the places this is."""
        own = (at_bn.double(), keys and self.keys_differ)
        alike = [other[1] == own[1] and torch.equal(other[0], own[0]) for other in self.found]
        self.found += [own] * (True not in alike)
        return alike.index(True) if True in alike else len(alike)


def _turns(
    session: Session, places: _Places, stage: Stage | None, dtype: torch.dtype, device: torch.device
) -> list[Rotation | None]:
    """The turns to all places, made together."""
    turns: list[Rotation | None] = [None] * len(places.found)
    for keys in (False, True):
        own = [n for n, (at, for_keys) in enumerate(places.found) if for_keys == keys and (session.decays or at.any())]
        whole = session.turn(torch.cat([places.found[n][0] for n in own], 1), stage, dtype, keys=keys) if own else None
        if whole:
            cos, sin = (part.to(device) for part in expand_rotation(whole, session.terms.facts.interleaved))
            for place, n in enumerate(own):
                turns[n] = Rotation(cos[:, :, place : place + 1], sin[:, :, place : place + 1])
    return turns


class _View(NamedTuple):
    """Places that a span sees, and what each row sees of them."""

    span: int
    place: slice
    inside_bn: Tensor | None  # nothing where every row sees all


def _views(session: Session, index: int, i: Tensor, count: int) -> list[_View]:
    """What a span sees, as stretches of its shelf."""
    shelf = session.shelves[session.shelf_of[index]]
    start, stop = session.spans[index].bounds(i)
    shift = 0 if shelf.by_number else session.first
    low, high = torch.maximum(start, session.first) - shift, stop - shift
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    seen = [pair for pair in bounds if pair[0] < pair[1]]
    if not seen:
        return []
    alike = bounds.count(seen[0]) == len(bounds)
    views = []
    for place in shelf.where(min(low for low, _ in seen), max(high for _, high in seen)):
        slots = None if alike else shelf.slots(place, count)
        views.append(_View(index, place, None if slots is None else (low[:, None] <= slots) & (slots < high[:, None])))
    return views


def _shelf(session: Session, view: _View) -> KVBuffer:
    return session.shelves[session.shelf_of[view.span]]


def _masks(session: Session, views: list[_View], i: Tensor, count: int) -> list[Tensor | None]:
    """Biases, and minus infinity where a row does not see: [b, h or 1, n]; nothing where every row sees all."""
    if not session.terms.extension.biases:
        blank = torch.zeros(())
        return [None if v.inside_bn is None else _hidden(blank.expand(v.inside_bn.shape)[:, None], v) for v in views]
    biases: list[Tensor | None] = []
    for view in views:
        span = session.spans[view.span]
        slots, shift = _shelf(session, view).slots(view.place, count), session.first[:, None]
        shown = span.q_at(i)[:, None] - span.k_at(slots[None] if _shelf(session, view).by_number else slots + shift)
        shown = shown if view.inside_bn is None else shown.where(view.inside_bn, 0)
        biases.append(_hidden(session.terms.bias(shown, i[:, None].expand_as(shown)).movedim(0, 1), view))
    return biases


def _hidden(mask_bhn: Tensor, view: _View) -> Tensor:
    return mask_bhn if view.inside_bn is None else mask_bhn.masked_fill(~view.inside_bn[:, None], -torch.inf)


def _read(
    session: Session, view: _View, asking: int, mask_bhn: Tensor | None, dtype: torch.dtype, device: torch.device
) -> BufferRead:
    shelf = session.shelf_of[view.span]
    if mask_bhn is None:
        return BufferRead(shelf, asking, view.place)
    heads = mask_bhn.expand(-1, session.terms.facts.heads, -1).to(device, compute_dtype(dtype))
    mask_bgrn = heads.unflatten(1, (session.terms.facts.groups, -1))  # type: ignore[no-untyped-call]
    return BufferRead(shelf, asking, view.place, mask_bgrn)


def _scale(session: Session, i_bn: Tensor, device: torch.device) -> Tensor | None:
    """The product of all scales, [b, heads or 1, 1, 1]."""
    if not session.terms.extension.scales:
        return None
    return torch.stack([session.terms.scale(i) for i in i_bn])[..., None].to(device)
