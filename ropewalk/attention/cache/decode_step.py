"""One token in every row: its rotations, and what it reads of which buffer. Computed once, used by every layer.

Legend: b batch (1 where all rows are alike), h query head, g key head, r query heads of one key head, n index.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.cache.kv_buffers import KVBuffer
from ropewalk.attention.cache.session import Session, Stage
from ropewalk.attention.rotation.rotate import Rotation, compute_dtype, expand_rotation


class BufferRead(NamedTuple):
    """Indices of a buffer that the query sees by one span."""

    buffer: int
    query: int  # which rotated query
    indices: slice
    mask_bgrn: Tensor | None = None


class DecodeStep(NamedTuple):
    """How the token is computed. Rotations are those of query and key together, each different one once."""

    scale_bhnd: Tensor | None
    rotations: list[Rotation | None]
    stores: list[tuple[int, int]]  # the buffers that store the token, and by which rotation
    stage: Stage | None
    reads: list[BufferRead]


def decode_step(session: Session, count: int, dtype: torch.dtype, device: torch.device) -> DecodeStep | None:
    """The step of a token, once for all layers; None if a row has none at this slot, or if xpos decay rules it out."""
    key = (count, dtype, device)
    if session.latest is None or session.latest[0] != key:
        i = session.numbers(torch.tensor([count]))
        step = _step(session, i, dtype, device) if _is_carried(session, i) else None
        session.latest = key, step
        return step
    latest: DecodeStep | None = session.latest[1]
    return latest


def _is_carried(session: Session, i: Tensor) -> bool:
    """Every row has a token; and with a decay, which counts from the query, the query is at its true position."""
    if int(i.min()) < 0:
        return False
    return not session.decays or all(bool((span.q_at(i) == i).all()) for span in session.spans)


def _step(session: Session, i: Tensor, dtype: torch.dtype, device: torch.device) -> DecodeStep:
    count, numbers = int(i[0]) - session.begins[0], i[:, 0]
    stage = session.stage(numbers.tolist())
    views = [view for n in range(len(session.spans)) for view in _views(session, n, numbers, count)]
    positions = _Positions(keys_differ=session.decays)
    queries = [positions.index(session.spans[view.span].q_rotated(i, session.turns), keys=False) for view in views]
    stores = [
        (n, positions.index(session.stored[n].k_rotated(i, session.turns), keys=True))
        for n, buffer in enumerate(session.buffers)
        if buffer.takes(count)
    ]
    reads = zip(views, queries, _masks(session, views, numbers, count), strict=True)
    return DecodeStep(
        scale_bhnd=_scale(session, i, device),
        rotations=_rotations(session, positions, stage, dtype, device),
        stores=stores,
        stage=stage,
        reads=[_read(session, view, n, mask, dtype, device) for view, n, mask in reads],
    )


class _Positions:
    """The different positions to rotate to; a decay rotates keys in another way than queries."""

    def __init__(self, *, keys_differ: bool) -> None:
        self.keys_differ = keys_differ
        self.entries: list[tuple[Tensor, bool]] = []

    def index(self, at_bn: Tensor, *, keys: bool) -> int:
        """The index of these positions, which are added if they are new."""
        entry = (at_bn.double(), keys and self.keys_differ)
        matches = [other[1] == entry[1] and torch.equal(other[0], entry[0]) for other in self.entries]
        self.entries += [entry] * (True not in matches)
        return matches.index(True) if True in matches else len(matches)


def _rotations(
    session: Session, positions: _Positions, stage: Stage | None, dtype: torch.dtype, device: torch.device
) -> list[Rotation | None]:
    """The rotations to all positions, computed together."""
    rotations: list[Rotation | None] = [None] * len(positions.entries)
    for keys in (False, True):
        chosen = [n for n, (at, of_keys) in enumerate(positions.entries) if of_keys == keys]
        chosen = [n for n in chosen if session.decays or positions.entries[n][0].any()]
        at_bn = _to_pair_positions([positions.entries[n][0] for n in chosen])
        whole = session.rotation(torch.cat(at_bn, 1), stage, dtype, keys=keys) if chosen else None
        if whole:
            cos, sin = (part.to(device) for part in expand_rotation(whole, session.terms.facts.interleaved))
            for column, n in enumerate(chosen):
                rotations[n] = Rotation(cos[:, :, column : column + 1], sin[:, :, column : column + 1])
    return rotations


def _to_pair_positions(at_bn: list[Tensor]) -> list[Tensor]:
    """Positions of tokens beside positions of their pairs: all as positions of pairs."""
    pairs = max((at.shape[2] for at in at_bn if at.dim() == 3), default=0)
    return [at[..., None].expand(-1, -1, pairs) if pairs and at.dim() == 2 else at for at in at_bn]


class _View(NamedTuple):
    """Indices that a span sees, and which of them each row sees."""

    span: int
    indices: slice
    inside_bn: Tensor | None  # nothing where every row sees all


def _views(session: Session, index: int, i: Tensor, count: int) -> list[_View]:
    """What a span sees, as runs of indices of its buffer."""
    buffer = session.buffers[session.buffer_of[index]]
    start, stop = session.spans[index].bounds(i)
    shift = 0 if buffer.by_number else session.first
    low, high = torch.maximum(start, session.first) - shift, stop - shift
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    filled = [pair for pair in bounds if pair[0] < pair[1]]
    if not filled:
        return []
    alike = bounds.count(filled[0]) == len(bounds)
    views = []
    for indices in buffer.where(min(low for low, _ in filled), max(high for _, high in filled)):
        slots = None if alike else buffer.slots(indices, count)
        views.append(
            _View(index, indices, None if slots is None else (low[:, None] <= slots) & (slots < high[:, None]))
        )
    return views


def _buffer(session: Session, view: _View) -> KVBuffer:
    return session.buffers[session.buffer_of[view.span]]


def _masks(session: Session, views: list[_View], i: Tensor, count: int) -> list[Tensor | None]:
    """Biases, and minus infinity where a row sees no key: [b, h or 1, n]; nothing where every row sees all."""
    if not session.terms.extension.biases:
        blank = torch.zeros(())
        return [None if v.inside_bn is None else _hidden(blank.expand(v.inside_bn.shape)[:, None], v) for v in views]
    biases: list[Tensor | None] = []
    for view in views:
        span, buffer = session.spans[view.span], _buffer(session, view)
        slots, shift = buffer.slots(view.indices, count), session.first[:, None]
        distance = span.q_at(i)[:, None] - span.k_at(slots[None] if buffer.by_number else slots + shift)
        distance = distance if view.inside_bn is None else distance.where(view.inside_bn, 0)
        biases.append(_hidden(session.terms.bias(distance, i[:, None].expand_as(distance)).movedim(0, 1), view))
    return biases


def _hidden(mask_bhn: Tensor, view: _View) -> Tensor:
    if view.inside_bn is None:
        return mask_bhn
    return mask_bhn.masked_fill(~view.inside_bn[:, None].to(mask_bhn.device), -torch.inf)


def _read(
    session: Session, view: _View, query: int, mask_bhn: Tensor | None, dtype: torch.dtype, device: torch.device
) -> BufferRead:
    buffer = session.buffer_of[view.span]
    if mask_bhn is None:
        return BufferRead(buffer, query, view.indices)
    heads = mask_bhn.expand(-1, session.terms.facts.heads, -1).to(device, compute_dtype(dtype))
    mask_bgrn = heads.unflatten(1, (session.terms.facts.groups, -1))  # type: ignore[no-untyped-call]
    return BufferRead(buffer, query, view.indices, mask_bgrn)


def _scale(session: Session, i_bn: Tensor, device: torch.device) -> Tensor | None:
    """The product of all scales, [b, heads or 1, 1, 1 or dimensions]."""
    if not session.terms.extension.scales:
        return None
    return torch.stack([session.terms.scale(i) for i in i_bn]).to(device)
