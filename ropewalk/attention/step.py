"""One token in every row: what turns it, which places of which shelf it sees. Made once, used by every layer.

Legend: b batch (1 where all rows are alike), h query head, g key head, r query heads of one key head, n place.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.rotation import Turn, spread
from ropewalk.attention.session import Session, Stage


class Read(NamedTuple):
    """Places of a shelf that the query sees by one span."""

    shelf: int
    asking: int
    place: slice
    mask_bgrn: Tensor | None = None
    unseeing: Tensor | None = None  # [b, 1, 1]: rows that see none of it


class Step(NamedTuple):
    """How the token is answered."""

    scale_bhnd: Tensor | None
    asking: list[Turn | None]  # the query's, without repetition
    incoming: list[Turn | None]  # the key's, without repetition
    taking: list[tuple[int, int]]  # the shelves that take the token, and which of the key's turns they want
    stage: Stage | None
    reads: list[Read]


def step(session: Session, count: int, dtype: torch.dtype, device: torch.device) -> Step | None:
    """The step of the token at this slot, made once for all layers; nothing where a row has none or a decay forbids."""
    key = (count, dtype, device)
    if session.latest is None or session.latest[0] != key:
        i = session.numbers(torch.tensor([count]))
        session.latest = key, _step(session, i, dtype, device) if _carries(session, i) else None
    made: Step | None = session.latest[1]
    return made


def _carries(session: Session, i: Tensor) -> bool:
    """A token in every row; and a decay counts from the query, so that has to stand at its own place."""
    if int(i.min()) < 0:
        return False
    return not session.decays or all(bool((span.q_at(i) == i).all()) for span in session.spans)


def _step(session: Session, i: Tensor, dtype: torch.dtype, device: torch.device) -> Step:
    count, numbers = int(i[0]) - session.begins[0], i[:, 0]
    stage = session.stage(numbers.tolist())
    asking, ask = _distinct([span.q_at(i) for span in session.spans])
    incoming, come = _distinct([k_at(i) for k_at in session.k_at])
    views = [view for n in range(len(session.spans)) for view in _views(session, n, numbers, count)]
    masks = _masks(session, views, numbers, dtype)

    def turns(places: list[Tensor], keys: bool) -> list[Turn | None]:
        found = [session.turn(at, stage, dtype, keys=keys) for at in places]
        return [_spread(turn, session.terms.facts.interleaved, device) for turn in found]

    return Step(
        _scale(session, i, device),
        turns(asking, keys=False),
        turns(incoming, keys=True),
        [(n, come[n]) for n, shelf in enumerate(session.shelves) if shelf.takes(count)],
        stage,
        [_read(session, view, ask[view.span], mask, device) for view, mask in zip(views, masks, strict=True)],
    )


def _distinct(places: list[Tensor]) -> tuple[list[Tensor], list[int]]:
    """The different ones, and which of them each is."""
    different: list[Tensor] = []
    index = []
    for at in places:
        alike = [torch.equal(at.double(), other.double()) for other in different]
        index.append(alike.index(True) if True in alike else len(different))
        different += [at] * (index[-1] == len(different))
    return different, index


def _spread(turn: Turn | None, interleaved: bool, device: torch.device) -> Turn | None:
    return Turn(*(part.to(device) for part in spread(turn, interleaved))) if turn else None


class _View(NamedTuple):
    """Places that a span sees, and what each row sees of them."""

    span: int
    place: slice
    numbers_bn: Tensor
    inside_bn: Tensor


def _views(session: Session, index: int, i: Tensor, count: int) -> list[_View]:
    """What a span sees, as stretches of its shelf."""
    shelf, begins = session.shelves[session.shelf_of[index]], torch.tensor(session.begins)
    start, stop = session.spans[index].bounds(i)
    start = torch.maximum(start, begins)
    seeing = stop > start
    if not seeing.any():
        return []
    shift = torch.zeros_like(begins) if shelf.by_number else begins
    low, high = start - shift, stop - shift
    views = []
    for place in shelf.where(int(low[seeing].min()), int(high[seeing].max())):
        slots = shelf.slots(place, count)
        inside = (low[:, None] <= slots) & (slots < high[:, None])
        if inside.any():
            views.append(_View(index, place, slots + shift[:, None], inside))
    return views


def _masks(session: Session, views: list[_View], i: Tensor, dtype: torch.dtype) -> list[Tensor | None]:
    """Biases, and minus infinity where a row does not see: [b, h or 1, n]; nothing where every row sees all."""
    if not session.terms.extension.biases:
        hidden = [view.inside_bn.all() for view in views]
        zeros = [torch.zeros(view.inside_bn.shape, dtype=dtype)[:, None] for view in views]
        return [
            None if all_seen else zero.masked_fill(~view.inside_bn[:, None], -torch.inf)
            for view, zero, all_seen in zip(views, zeros, hidden, strict=True)
        ]
    biases = []
    for view in views:
        span = session.spans[view.span]
        shown = (span.q_at(i)[:, None] - span.k_at(view.numbers_bn)).where(view.inside_bn, 0)
        bias = session.terms.bias(shown, i[:, None].expand_as(shown)).movedim(0, 1)
        biases.append(bias.masked_fill(~view.inside_bn[:, None], -torch.inf))
    # What all keys of a row and head have in common cancels in the softmax; without it little is lost to rounding.
    most = torch.cat(biases, -1).amax(-1, keepdim=True)
    return [(bias - most).to(dtype) for bias in biases]


def _read(session: Session, view: _View, asking: int, mask_bhn: Tensor | None, device: torch.device) -> Read:
    shelf = session.shelf_of[view.span]
    if mask_bhn is None:
        return Read(shelf, asking, view.place)
    heads = mask_bhn.expand(-1, session.terms.facts.heads, -1)
    mask_bgrn = heads.unflatten(1, (session.terms.facts.groups, -1)).to(device)  # type: ignore[no-untyped-call]
    unseeing = ~view.inside_bn.any(1)[:, None, None]
    return Read(shelf, asking, view.place, mask_bgrn, unseeing.to(device) if unseeing.any() else None)


def _scale(session: Session, i_bn: Tensor, device: torch.device) -> Tensor | None:
    """The product of all scales, [b, heads or 1, 1, 1]."""
    facts, weights = session.terms.facts, session.terms.weights
    total: Tensor | None = None
    for spec in session.terms.extension.scales:
        scale = torch.stack([spec.scale(i, facts, weights.get(spec.name, {})) for i in i_bn])
        total = scale if total is None else total * scale
    return None if total is None else total[..., None].to(device)
