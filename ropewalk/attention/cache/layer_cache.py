"""One layer's past: keys turned when they come, kept as far as the reach needs them, read in place.

Legend: b batch, h query head, g key head, r query heads of one key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.attention.cache.decode_step import BufferRead, DecodeStep, decode_step
from ropewalk.attention.cache.kv_buffers import BufferUpdate, Lanes
from ropewalk.attention.cache.session import Session, Stage
from ropewalk.attention.dispatch import attend_sequences
from ropewalk.attention.layout.segments import SpanKeys
from ropewalk.attention.rotation.precision import to_compute_dtype
from ropewalk.attention.rotation.rotate import rotate, rotate_few
from ropewalk.attention.torch_kernels.softmax import capped, softmax
from ropewalk.errors import InvalidValue
from ropewalk.inputs import require_kinship, require_shapes

TURNED, VALUES, RAW = 0, 1, 2  # the lanes of a shelf; keys as they came only where a stage may end


class LayerCache:
    """What `attend` gives for all keys so far, however the text is cut: `read` takes the next tokens of every row."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.count = 0
        self._furthest = 0  # the most there has been: what rings have written over is not undone by taking back
        self._lanes: list[Lanes] = [[] for _ in session.shelves]
        self._stages: list[Stage | None] = [None] * len(session.shelves)

    @property
    def batch(self) -> int:
        """How many rows are read."""
        return next((len(lanes[VALUES]) for lanes in self._lanes if lanes), self.session.rows)

    @property
    def nbytes(self) -> int:
        """What is held."""
        return sum(lane.nbytes for lanes in self._lanes for lane in lanes)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order, some perhaps twice."""
        self._lanes = [[lane[list(rows)] for lane in lanes] for lanes in self._lanes]
        self.session = self.session.of_rows(rows)
        self._stages = [None] * len(self._stages)

    def forget(self, tokens: int) -> None:
        """Take back the last tokens."""
        if not 0 <= tokens <= self.count:
            raise InvalidValue("tokens", f"between 0 and the {self.count} that were read", tokens)
        left = self.count - tokens
        if tokens and not all(shelf.can_forget(self._furthest, left) for shelf in self.session.shelves):
            rule = f"at most {self.session.spare} once a window is full: what it held before is gone"
            raise InvalidValue("tokens", rule, tokens, remedy="a session with more spare room takes back more")
        self.count = left

    def read(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        """Take in the next tokens and answer them; padded ones get zeros."""
        self._check(q_bhid, k_bgjd, v_bgjd)
        with torch.no_grad():
            return self._read(q_bhid, k_bgjd, v_bgjd)

    def _read(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        alone = k_bgjd.shape[2] == 1
        own = decode_step(self.session, self.count, q_bhid.dtype, q_bhid.device) if alone else None
        with torch.autocast(q_bhid.device.type, enabled=False):
            out = self._step(own, q_bhid, k_bgjd, v_bgjd) if own else self._chunk(q_bhid, k_bgjd, v_bgjd)
        self.count += k_bgjd.shape[2]
        self._furthest = max(self._furthest, self.count)
        return out

    def _check(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> None:
        require_shapes(q_bhid, k_bgjd, v_bgjd, self.session.terms.facts)
        require_kinship(q_bhid, k_bgjd, v_bgjd)
        held = [lanes[VALUES] for lanes in self._lanes if lanes]
        batch = len(held[0]) if held else self.session.rows if self.session.rows > 1 else len(q_bhid)
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q_bhid, k_bgjd, v_bgjd)):
            raise InvalidValue("q, k, v", "free of gradients", "some want one", remedy="use torch.no_grad(), or attend")
        if q_bhid.shape[2] != k_bgjd.shape[2]:
            raise InvalidValue("q", f"as many tokens as k ({k_bgjd.shape[2]})", q_bhid.shape[2])
        if len(q_bhid) != batch:
            raise InvalidValue("q", f"of the {batch} rows that are being read", len(q_bhid))
        if held and held[0].dtype != v_bgjd.dtype:
            raise InvalidValue("v", f"of the type that is held ({held[0].dtype})", v_bgjd.dtype)

    def _step(self, own: DecodeStep, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        """One token in every row: what is kept is read where it lies."""
        heads, both = q_bhid.shape[1], self._turned(own, q_bhid, k_bgjd)
        for n, stage in enumerate(self._stages):
            if stage != own.stage:
                self._turn_anew(n, own.stage)
        for n, way in own.taking:
            new = [both[way][:, heads:].to(k_bgjd.dtype), v_bgjd, *([k_bgjd] if self.session.drifts else [])]
            self._lanes[n] = self.session.shelves[n].push(self._lanes[n], new, self.count)
        # The query heads of a key head are rows of one product with it.
        asking = [each[:, :heads].view(len(each), k_bgjd.shape[1], -1, each.shape[-1]) for each in both]
        return self._weighed(own.reads, asking).reshape(*q_bhid.shape[:3], -1)

    def _turned(self, own: DecodeStep, q_bhid: Tensor, k_bgjd: Tensor) -> list[Tensor]:
        """Scaled query and key together, turned each way, in at least float32."""
        q_bhid = to_compute_dtype(q_bhid) / math.sqrt(q_bhid.shape[-1])
        if own.scale_bhnd is not None:
            q_bhid = (q_bhid * own.scale_bhnd).to(q_bhid.dtype)
        both, interleaved = torch.cat([q_bhid, to_compute_dtype(k_bgjd)], 1), self.session.terms.facts.interleaved
        return [rotate_few(both, turn, interleaved) if turn else both for turn in own.turns]

    def _weighed(self, reads: list[BufferRead], asking: list[Tensor]) -> Tensor:
        """The answer over all that is read: one softmax, whose parts lie where their keys do."""
        logits, sink_h = [self._logit(read, asking[read.asking]) for read in reads], self.session.terms.sink_h
        sink_grn = None if sink_h is None else sink_h.view(logits[0].shape[1], -1, 1).to(logits[0].device)
        weight = softmax(torch.cat(logits, -1) if len(logits) > 1 else logits[0], sink_grn)
        shares = torch.split(weight, [each.shape[-1] for each in logits], -1)
        parts = [self._part(read, share) for read, share in zip(reads, shares, strict=True)]
        return functools.reduce(torch.add, parts)

    def _part(self, read: BufferRead, share_bgrn: Tensor) -> Tensor:
        v_bgnd = self._lanes[read.shelf][VALUES][:, :, read.place]
        return share_bgrn.to(v_bgnd.dtype) @ v_bgnd

    def _logit(self, read: BufferRead, q_bgrd: Tensor) -> Tensor:
        """Half precision is for keeping: logits are formed and kept in at least float32."""
        logit = q_bgrd @ to_compute_dtype(self._lanes[read.shelf][TURNED][:, :, read.place]).mT
        softcap, mask = self.session.terms.facts.softcap, read.mask_bgrn
        if mask is None:
            return capped(logit, softcap)
        whole = capped(logit + mask, softcap)
        return whole if softcap is None else whole.masked_fill(mask == -torch.inf, -torch.inf)

    def _turn_anew(self, n: int, stage: Stage | None) -> None:
        """All that a shelf holds, from the keys as they came, for a new stage."""
        self._stages[n] = stage
        if not self._lanes[n]:
            return
        shelf, lanes = self.session.shelves[n], self._lanes[n]
        place = shelf.held(self.count)
        slots = shelf.slots(place, self.count - 1)
        numbers = slots.expand(len(self.session.begins), -1) if shelf.by_number else self.session.numbers(slots)
        turn = self.session.turn(self.session.k_at[n](numbers), stage, lanes[RAW].dtype, keys=True)
        raw = lanes[RAW][:, :, place]
        lanes[TURNED][:, :, place] = rotate(raw, turn, self.session.terms.facts.interleaved) if turn else raw

    def _chunk(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        """Any tokens: what is kept, and what is new, as attention within each row's text."""
        session, slots = self.session, torch.arange(self.count, self.count + k_bgjd.shape[2])
        numbers = session.numbers(slots)
        seen = []
        for n, shelf in enumerate(session.shelves):
            extended = shelf.extend(self._lanes[n], self._incoming(n, numbers, k_bgjd, v_bgjd), self.count)
            self._lanes[n], self._stages[n] = extended.kept, None
            seen.append(extended)
        out = v_bgjd.new_zeros(*q_bhid.shape[:3], v_bgjd.shape[-1])
        for begin in dict.fromkeys(session.begins):
            rows = [row for row, other in enumerate(session.begins) if other == begin]
            which = slice(None) if len(session.begins) == 1 else rows
            real = max(0, -begin - self.count)
            if real < len(slots):
                keys = [self._keys(n, extended, which, begin, len(slots)) for n, extended in enumerate(seen)]
                own = [keys[n] for n in session.shelf_of]
                out[which, :, real:] = attend_sequences(
                    q_bhid[which, :, real:], slots[real:] + begin, own, session.terms
                )
        return out

    def _incoming(self, n: int, numbers: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Lanes:
        """A shelf's lanes of new tokens; where a stage may end, no key is turned before a step asks for it."""
        if self.session.drifts:
            return [k_bgjd, v_bgjd, k_bgjd]
        turn = self.session.turn(self.session.k_at[n](numbers), None, k_bgjd.dtype, keys=True)
        return [rotate(k_bgjd, turn, self.session.terms.facts.interleaved) if turn else k_bgjd, v_bgjd]

    def _keys(self, n: int, seen: BufferUpdate, which: slice | list[int], begin: int, new: int) -> SpanKeys:
        """What rows that begin alike can see of a shelf."""
        last = self.count + new
        if self.session.shelves[n].by_number:
            numbers = torch.arange(max(begin, 0), max(begin, 0, min(last + begin, seen.ordered[VALUES].shape[2])))
            first = max(begin, 0)
        else:
            numbers = torch.arange(max(seen.first, -begin), last) + begin
            first = max(seen.first, -begin) - seen.first
        lane = RAW if self.session.drifts else TURNED
        k, v = (seen.ordered[each][which, :, first : first + len(numbers)] for each in (lane, VALUES))
        return SpanKeys(k, v, numbers, turned=not self.session.drifts)
