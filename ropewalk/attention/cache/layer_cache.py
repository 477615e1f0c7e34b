"""One layer's past tokens: keys are rotated when they are read, stored as far as the reach needs them, used in place.

Legend: b batch (1 where all rows are alike), h query head, g key head, r query heads of one key head, i query, j key,
n index, d head dimension.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.cache.buffers import BufferUpdate, CacheState, Lanes, Stage, phase_of
from ropewalk.attention.dispatch import attend_phases
from ropewalk.attention.layout.segments import SpanKeys
from ropewalk.attention.rotation.rotate import (
    Rotation,
    compute_dtype,
    expand_rotation,
    rotate,
    rotate_few,
    to_compute_dtype,
)
from ropewalk.attention.torch_kernels import fused
from ropewalk.attention.torch_kernels.softmax import cap_logits, merge_parts, softmax
from ropewalk.errors import InvalidValue
from ropewalk.extension.inputs import require_kinship, require_shapes

ROTATED, VALUES, RAW = 0, 1, 2  # the lanes of a buffer; unrotated keys only where the table may change
KERNEL_DEVICES = ("cuda",)  # on a CPU two products are faster, and keep queries in float32


class LayerCache:
    """`attend` over a text that arrives in chunks of any size: `read` takes the next tokens of every row.

    The outputs are those of one `attend` over the whole text. Only the keys that the reach can still see are stored.
    There is no backward pass.

        cache = LayerCache(CacheState(parse("rerope:window=1024"), facts))
        out = cache.read(q, k, v)  # q is [batch, heads, n, head_dim], k and v [batch, kv_heads, n, ...], any n
        out = cache.read(q_next, k_next, v_next)
    """

    def __init__(self, state: CacheState) -> None:
        if state.parts:
            raise InvalidValue.because("state", "its heads keep different keys", remedy="use cache_for(state)")
        self.state = state
        self.count = 0
        self._furthest = 0  # the largest count so far: rings stay overwritten when tokens are removed
        self._lanes: list[Lanes] = [[] for _ in state.buffers]
        self._stages: list[Stage | None] = [None] * len(state.buffers)
        self._checked: list[tuple[torch.Size, torch.dtype, torch.device]] = []  # shapes, types and devices that fit

    @property
    def batch(self) -> int:
        """The number of rows."""
        return next((len(lanes[VALUES]) for lanes in self._lanes if lanes), self.state.rows)

    @property
    def nbytes(self) -> int:
        """The memory of all stored vectors, in bytes."""
        return sum(lane.nbytes for lanes in self._lanes for lane in lanes)

    def select(self, rows: Sequence[int]) -> None:
        """Continue with these rows in this order; a row may appear more than once."""
        self._lanes = [[lane[list(rows)] for lane in lanes] for lanes in self._lanes]
        self.state = self.state.of_rows(rows)
        self._stages, self._checked = [None] * len(self._stages), []

    def forget(self, tokens: int) -> None:
        """Remove the last tokens, as after a rejected draft."""
        self.require_forgettable(tokens)
        self.count -= tokens

    def require_forgettable(self, tokens: int) -> None:
        """Refuse to remove more tokens than can be removed again."""
        if not 0 <= tokens <= self.count:
            raise InvalidValue("tokens", f"between 0 and the {self.count} that were read", tokens)
        left = self.count - tokens
        if tokens and not all(buffer.can_forget(self._furthest, left) for buffer in self.state.buffers):
            rule = f"at most {self.state.spare} once a window is full, since older keys are overwritten"
            raise InvalidValue("tokens", rule, tokens, remedy="create the state with a larger spare")

    def read(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, written_bn: Tensor | None = None) -> Tensor:
        """Store the next n tokens and return their outputs, [batch, heads, n, value size]; zeros for padded ones.

        `q_bhid` is [batch, heads, n, head_dim], `k_bgjd` and `v_bgjd` [batch, kv_heads, n, head_dim or value size].
        `written_bn` says which of the tokens the model wrote, for a reach that tells them apart.
        """
        self._check(q_bhid, k_bgjd, v_bgjd)
        with torch.no_grad():
            return self._read(q_bhid, k_bgjd, v_bgjd, self.state.told_apart(written_bn, k_bgjd))

    def _read(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, written_bn: Tensor | None) -> Tensor:
        phase = phase_of(written_bn) if k_bgjd.shape[2] == 1 else None
        step = None if phase is None else decode_step(self.state, self.count, q_bhid.dtype, q_bhid.device, phase)
        with torch.autocast(q_bhid.device.type, enabled=False):
            out = self._token(step, q_bhid, k_bgjd, v_bgjd) if step else self._chunk(q_bhid, k_bgjd, v_bgjd, written_bn)
        self.count += k_bgjd.shape[2]
        self._furthest = max(self._furthest, self.count)
        return out

    def _check(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> None:
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q_bhid, k_bgjd, v_bgjd)):
            raise InvalidValue(
                "q, k, v", "without gradients", "some that need one", remedy="use torch.no_grad(), or attend"
            )
        vectors = [(x.shape, x.dtype, x.device) for x in (q_bhid, k_bgjd, v_bgjd)]
        if vectors == self._checked:  # as from one token to the next
            return
        require_shapes(q_bhid, k_bgjd, v_bgjd, self.state.terms.heads_here)
        require_kinship(q_bhid, k_bgjd, v_bgjd)
        stored = [lanes[VALUES] for lanes in self._lanes if lanes]
        batch = len(stored[0]) if stored else self.state.rows if self.state.rows > 1 else len(q_bhid)
        if q_bhid.shape[2] != k_bgjd.shape[2]:
            raise InvalidValue("q", f"as many tokens as k ({k_bgjd.shape[2]})", q_bhid.shape[2])
        if len(q_bhid) != batch:
            raise InvalidValue("q", f"for the cache's {batch} rows", len(q_bhid))
        if stored and stored[0].dtype != v_bgjd.dtype:
            raise InvalidValue("v", f"of the cache's type ({stored[0].dtype})", v_bgjd.dtype)
        self._checked = vectors

    def _token(self, step: DecodeStep, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        """One token in every row: buffers are read without a copy."""
        heads, both = q_bhid.shape[1], self._rotated(step, q_bhid, k_bgjd)
        for n, stage in enumerate(self._stages):
            if stage != step.stage:
                self._rotate_again(n, step.stage)
        for n, rotation in step.stores:
            new = [both[rotation][:, heads:].to(k_bgjd.dtype), v_bgjd, *([k_bgjd] if self.state.has_stages else [])]
            self._lanes[n] = self.state.buffers[n].push(self._lanes[n], new, self.count)
        # The query heads of a key head are rows of one product with it.
        weighted = [self.state.terms.weighted(x[:, :heads]) for x in both]
        queries = [x.view(len(x), k_bgjd.shape[1], -1, x.shape[-1]) for x in weighted]
        if self._is_for_kernel(step.reads):
            return self._by_kernel(step.reads, queries).to(v_bgjd.dtype)
        return self._weighted(step.reads, queries).reshape(*q_bhid.shape[:3], -1)

    def _rotated(self, step: DecodeStep, q_bhid: Tensor, k_bgjd: Tensor) -> list[Tensor]:
        """Scaled query and key together, by each rotation, in at least float32."""
        q_bhid = to_compute_dtype(q_bhid) / math.sqrt(q_bhid.shape[-1])
        if step.scale_bhnd is not None:
            q_bhid = (q_bhid * step.scale_bhnd).to(q_bhid.dtype)
        both, interleaved = torch.cat([q_bhid, to_compute_dtype(k_bgjd)], 1), self.state.terms.facts.interleaved
        return [rotate_few(both, rotation, interleaved) if rotation else both for rotation in step.rotations]

    def _is_for_kernel(self, reads: list[BufferRead]) -> bool:
        """Whether torch's fused kernel computes a step. On a GPU it reads keys and values once, as they are stored."""
        lanes, facts = self._lanes[reads[0].buffer], self.state.terms.facts
        keys, values = lanes[ROTATED], lanes[VALUES]
        plain = facts.softcap is None and all(read.mask_bgrn is None for read in reads)
        fitting = values.dtype.itemsize == 2 and keys.shape[-1] == values.shape[-1]
        if not (plain and fitting and values.device.type in KERNEL_DEVICES):
            return False
        if fused.why_no_kernel(values.device, values.dtype, values.shape[-1]):
            return False
        return fused.has_step_kernel(str(values.device), values.dtype)

    def _by_kernel(self, reads: list[BufferRead], queries: list[Tensor]) -> Tensor:
        """The output over all reads, [b, h, 1, d]: a call for each, merged by their log-sum-exp."""
        parts = []
        for read in reads:
            keys, values = (self._lanes[read.buffer][lane][:, :, read.indices] for lane in (ROTATED, VALUES))
            q_bh1d = (queries[read.query] * math.sqrt(keys.shape[-1])).flatten(1, 2)[:, :, None]  # the kernel scales
            parts.append(fused.forward(q_bh1d.to(values.dtype), keys, values, triangle=False))
        return merge_parts(parts, self.state.terms.sink_h)

    def _weighted(self, reads: list[BufferRead], queries: list[Tensor]) -> Tensor:
        """The output over all reads: one softmax, split over the buffers."""
        logits, sink_h = [self._logit(read, queries[read.query]) for read in reads], self.state.terms.sink_h
        sink_grn = None if sink_h is None else sink_h.view(logits[0].shape[1], -1, 1).to(logits[0].device)
        weight = softmax(torch.cat(logits, -1) if len(logits) > 1 else logits[0], sink_grn)
        shares = torch.split(weight, [logit.shape[-1] for logit in logits], -1)
        parts = [self._part(read, share) for read, share in zip(reads, shares, strict=True)]
        return functools.reduce(torch.add, parts)

    def _part(self, read: BufferRead, share_bgrn: Tensor) -> Tensor:
        v_bgnd = self._lanes[read.buffer][VALUES][:, :, read.indices]
        return share_bgrn.to(v_bgnd.dtype) @ v_bgnd

    def _logit(self, read: BufferRead, q_bgrd: Tensor) -> Tensor:
        """Half precision is for storage: logits are computed and stay in at least float32."""
        logit = q_bgrd @ to_compute_dtype(self._lanes[read.buffer][ROTATED][:, :, read.indices]).mT
        softcap, mask = self.state.terms.facts.softcap, read.mask_bgrn
        if mask is None:
            return cap_logits(logit, softcap)
        whole = cap_logits(logit + mask, softcap)
        return whole if softcap is None else whole.masked_fill(mask == -torch.inf, -torch.inf)

    def _rotate_again(self, n: int, stage: Stage | None) -> None:
        """Rotate all keys of a buffer for a new stage, from the unrotated ones."""
        self._stages[n] = stage
        if not self._lanes[n]:
            return
        buffer, lanes = self.state.buffers[n], self._lanes[n]
        indices = buffer.held(self.count)
        slots = buffer.slots(indices, self.count - 1)
        numbers = slots.expand(len(self.state.begins), -1) if buffer.by_number else self.state.numbers(slots)
        lanes[ROTATED][:, :, indices] = self._rotated_keys(n, numbers, stage, lanes[RAW][:, :, indices])

    def _rotated_keys(self, n: int, numbers: Tensor, stage: Stage | None, k_bgjd: Tensor) -> Tensor:
        at = self.state.stored[n].k_rotated(numbers, self.state.turns)
        rotation = self.state.rotation(at, stage, k_bgjd.dtype, keys=True, device=k_bgjd.device)
        return rotate(k_bgjd, rotation, self.state.terms.facts.interleaved) if rotation else k_bgjd

    def _chunk(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, written_bn: Tensor | None) -> Tensor:
        """Any number of tokens: attention over stored and new tokens, within each row's sequence."""
        state, slots = self.state, torch.arange(self.count, self.count + k_bgjd.shape[2])
        numbers = state.numbers(slots)
        updates = []
        for n, buffer in enumerate(state.buffers):
            updates.append(buffer.extend(self._lanes[n], self._new_lanes(n, numbers, k_bgjd, v_bgjd), self.count))
            self._lanes[n], self._stages[n] = updates[n].lanes, None
        out = v_bgjd.new_zeros(*q_bhid.shape[:3], v_bgjd.shape[-1])
        for selected, begin, written_n in state.rows_alike(len(q_bhid), written_bn):
            padded = max(0, -begin - self.count)
            if padded < len(slots):
                keys = [self._keys(n, update, selected, begin, len(slots)) for n, update in enumerate(updates)]
                out[selected, :, padded:] = attend_phases(
                    q_bhid[selected, :, padded:],
                    slots[padded:] + begin,
                    None if written_n is None else written_n[padded:],
                    [[keys[state.buffer_of[n]] for n in state.spans_of(phase)] for phase in range(len(state.phases))],
                    state.terms,
                )
        return out

    def _new_lanes(self, n: int, numbers: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Lanes:
        """A buffer's lanes of new tokens. Where the table may change, keys are rotated only when a step needs them."""
        if self.state.has_stages:
            return [k_bgjd, v_bgjd, k_bgjd]
        return [self._rotated_keys(n, numbers, None, k_bgjd), v_bgjd]

    def _keys(self, n: int, update: BufferUpdate, selected: slice | list[int], begin: int, new: int) -> SpanKeys:
        """What rows with the same first number can see of a buffer."""
        last = self.count + new
        if self.state.buffers[n].by_number:
            numbers = torch.arange(max(begin, 0), max(begin, 0, min(last + begin, update.ordered[VALUES].shape[2])))
            first = max(begin, 0)
        else:
            numbers = torch.arange(max(update.first, -begin), last) + begin
            first = max(update.first, -begin) - update.first
        lane = RAW if self.state.has_stages else ROTATED
        k, v = (update.ordered[n][selected, :, first : first + len(numbers)] for n in (lane, VALUES))
        return SpanKeys(k, v, numbers, rotated=not self.state.has_stages)


# One token in every row: its rotations, and what it reads of which buffer. Computed once, used by every layer.


class BufferRead(NamedTuple):
    """Indices of a buffer that the query sees by one span."""

    buffer: int
    query: int  # which rotated query
    indices: slice
    mask_bgrn: Tensor | None = None


class DecodeStep(NamedTuple):
    """How the token is computed. Rotations are those of query and key together, each different one once."""

    scale_bhnd: Tensor | None  # the product of all scales, [b, heads or 1, 1, 1 or dimensions]
    rotations: list[Rotation | None]
    stores: list[tuple[int, int]]  # the buffers that store the token, and by which rotation
    stage: Stage | None
    reads: list[BufferRead]


def decode_step(
    state: CacheState, count: int, dtype: torch.dtype, device: torch.device, phase: int = 0
) -> DecodeStep | None:
    """The step of a token, once for all layers; None if a row has none at this slot, or if xpos decay rules it out.

    `phase` is 1 for a token that the model wrote.
    """
    key = (count, dtype, device, phase)
    if state.latest is None or state.latest[0] != key:
        i = state.numbers(torch.tensor([count]))
        step = _step(state, i, dtype, device, phase) if state.carries(i) else None
        state.latest = key, step
        return step
    latest: DecodeStep | None = state.latest[1]
    return latest


def _step(state: CacheState, i: Tensor, dtype: torch.dtype, device: torch.device, phase: int) -> DecodeStep:
    count, numbers = int(i[0]) - state.begins[0], i[:, 0]
    stage = state.stage(numbers.tolist())
    views = [view for n in state.spans_of(phase) for view in _views(state, n, numbers, count)]
    positions = _Positions(keys_differ=state.decays)
    queries = [positions.index(state.spans[view.span].q_rotated(i, state.turns), keys=False) for view in views]
    stores = [
        (n, positions.index(state.stored[n].k_rotated(i, state.turns), keys=True))
        for n, buffer in enumerate(state.buffers)
        if buffer.takes(count)
    ]
    masks = [_mask(state, view, numbers, count, dtype, device) for view in views]
    scales = [state.terms.scale(row) for row in i] if state.terms.extension.scales else []
    return DecodeStep(
        scale_bhnd=torch.stack(scales).to(device) if scales else None,
        rotations=_rotations(state, positions, stage, dtype, device),
        stores=stores,
        stage=stage,
        reads=[BufferRead(v.buffer, n, v.indices, mask) for v, n, mask in zip(views, queries, masks, strict=True)],
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
    state: CacheState, positions: _Positions, stage: Stage | None, dtype: torch.dtype, device: torch.device
) -> list[Rotation | None]:
    """The rotations to all positions, computed together."""
    rotations: list[Rotation | None] = [None] * len(positions.entries)
    for keys in (False, True):
        chosen = [n for n, (at, of_keys) in enumerate(positions.entries) if of_keys == keys]
        chosen = [n for n in chosen if state.decays or positions.entries[n][0].any()]
        at_bn = _to_pair_positions([positions.entries[n][0] for n in chosen])
        whole = state.rotation(torch.cat(at_bn, 1), stage, dtype, keys=keys) if chosen else None
        if whole:
            cos, sin = (part.to(device) for part in expand_rotation(whole, state.terms.facts.interleaved))
            for column, n in enumerate(chosen):
                rotations[n] = Rotation(cos[:, :, column : column + 1], sin[:, :, column : column + 1])
    return rotations


def _to_pair_positions(at_bn: list[Tensor]) -> list[Tensor]:
    """Positions of tokens beside positions of their pairs: all as positions of pairs."""
    pairs = max((at.shape[2] for at in at_bn if at.dim() == 3), default=0)
    return [at[..., None].expand(-1, -1, pairs) if pairs and at.dim() == 2 else at for at in at_bn]


class _View(NamedTuple):
    """Indices of a buffer that a span sees, and which of them each row sees."""

    span: int
    buffer: int
    indices: slice
    inside_bn: Tensor | None  # nothing where every row sees all


def _views(state: CacheState, index: int, i: Tensor, count: int) -> list[_View]:
    """What a span sees, as runs of indices of its buffer."""
    number = state.buffer_of[index]
    buffer, (start, stop) = state.buffers[number], state.spans[index].bounds(i)
    shift = 0 if buffer.by_number else state.first
    low, high = torch.maximum(start, state.first) - shift, stop - shift
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    filled = [pair for pair in bounds if pair[0] < pair[1]]
    if not filled:
        return []
    alike, views = bounds.count(filled[0]) == len(bounds), []
    for indices in buffer.where(min(low for low, _ in filled), max(high for _, high in filled)):
        slots = None if alike else buffer.slots(indices, count)
        inside_bn = None if slots is None else (low[:, None] <= slots) & (slots < high[:, None])
        views.append(_View(index, number, indices, inside_bn))
    return views


def _mask(
    state: CacheState, view: _View, i: Tensor, count: int, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """Biases, and minus infinity where a row sees no key: [b, g, r, n]; nothing where every row sees all."""
    facts = state.terms.heads_here
    if state.terms.extension.biases:
        span, buffer = state.spans[view.span], state.buffers[view.buffer]
        slots = buffer.slots(view.indices, count)
        j = slots[None] if buffer.by_number else slots + state.first[:, None]
        distance = span.q_at(i)[:, None] - span.k_at(j)
        distance = distance if view.inside_bn is None else distance.where(view.inside_bn, 0)
        mask_bhn = state.terms.bias(distance, i[:, None].expand_as(distance)).movedim(0, 1)
    elif view.inside_bn is not None:
        mask_bhn = torch.zeros(()).expand(view.inside_bn.shape)[:, None]
    else:
        return None
    if view.inside_bn is not None:
        mask_bhn = mask_bhn.masked_fill(~view.inside_bn[:, None].to(mask_bhn.device), -torch.inf)
    whole_bhn = mask_bhn.expand(-1, facts.heads, -1).to(device, compute_dtype(dtype))
    mask_bgrn: Tensor = whole_bhn.unflatten(1, (facts.groups, -1))  # type: ignore[no-untyped-call]
    return mask_bgrn
