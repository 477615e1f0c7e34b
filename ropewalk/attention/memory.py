"""One layer's past: keys turned when they come, kept as far as the reach needs them, read in place.

Legend: b batch, h query head, g key head, r query heads of one key head, i query, j key, d head dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.attention import kernels
from ropewalk.attention.kernels import Part
from ropewalk.attention.one_text import attend_text
from ropewalk.attention.precision import wide
from ropewalk.attention.rotation import turned, turned_once
from ropewalk.attention.session import Session, Stage
from ropewalk.attention.shelves import Extended, Lanes
from ropewalk.attention.step import Front, Read, Step, step
from ropewalk.attention.strands import Keys
from ropewalk.errors import InvalidValue
from ropewalk.inputs import require_kinship, require_shapes

NEVER = -1e30  # the log-sum-exp of nothing, small beyond every other and still a number
TURNED, VALUES, RAW = 0, 1, 2  # the lanes of a shelf; keys as they came only where a stage may end


class Memory:
    """What `attend` gives for all keys so far, however the text is cut: `read` takes the next tokens of every row."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.count = 0
        self._lanes: list[Lanes] = [[] for _ in session.shelves]
        self._stages: list[Stage | None] = [None] * len(session.shelves)

    @property
    def nbytes(self) -> int:
        """What is held."""
        return sum(lane.nbytes for lanes in self._lanes for lane in lanes)

    def read(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        """Take in the next tokens and answer them; padded ones get zeros."""
        self._check(q_bhid, k_bgjd, v_bgjd)
        with torch.no_grad():
            return self._read(q_bhid, k_bgjd, v_bgjd)

    def _read(self, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        alone = k_bgjd.shape[2] == 1 and v_bgjd.shape[-1] == q_bhid.shape[-1]
        own = step(self.session, self.count, q_bhid.dtype, q_bhid.device) if alone else None
        with torch.autocast(q_bhid.device.type, enabled=False):
            out = self._step(own, q_bhid, k_bgjd, v_bgjd) if own else self._chunk(q_bhid, k_bgjd, v_bgjd)
        self.count += k_bgjd.shape[2]
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

    def _step(self, own: Step, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Tensor:
        """One token in every row: what is kept is read where it lies."""
        session, heads = self.session, q_bhid.shape[1]
        if own.scale_bhnd is not None:
            q_bhid = (q_bhid * own.scale_bhnd.to(wide(q_bhid.dtype))).to(q_bhid.dtype)
        both = self._turned_each(torch.cat([q_bhid, k_bgjd], 1), own)
        for n, way in own.taking:
            if self._stages[n] != own.stage:
                self._turn_anew(n, own.stage)
            new = [both[way][:, heads:], v_bgjd, *([k_bgjd] if session.drifts else [])]
            self._lanes[n] = session.shelves[n].push(self._lanes[n], new, self.count)
        if own.front:
            self._copy_to_front(own.front)
        # The query heads of a key head are rows of one product with it.
        folded = [each[:, :heads].view(len(each), k_bgjd.shape[1], -1, each.shape[-1]) for each in both]
        return _merged([self._part(folded[read.asking], read) for read in own.reads]).view(q_bhid.shape)

    def _turned_each(self, x_bhnd: Tensor, own: Step) -> list[Tensor]:
        interleaved = self.session.terms.facts.interleaved
        return [turned_once(x_bhnd, turn, interleaved) if turn else x_bhnd for turn in own.turns]

    def _copy_to_front(self, front: Front) -> None:
        from_there, to = self._lanes[front.beginning], self._lanes[front.ring]
        keys, size = from_there[TURNED], from_there[TURNED].shape[2]
        interleaved = self.session.terms.facts.interleaved
        to[TURNED][:, :, :size] = turned_once(keys, front.turn, interleaved) if front.turn else keys
        to[VALUES][:, :, :size] = from_there[VALUES]

    def _part(self, q_bgrd: Tensor, read: Read) -> Part:
        k, v = (self._lanes[read.shelf][lane][:, :, read.place] for lane in (TURNED, VALUES))
        part = kernels.forward(q_bgrd, k, v, triangle=False, mask_ij=read.mask_bgrn)
        if read.unseeing is None:
            return part
        out = part.out_bhid.masked_fill(read.unseeing[..., None], 0)
        return Part(out, part.lse_bhi.masked_fill(read.unseeing, NEVER))

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
        lanes[TURNED][:, :, place] = turned(raw, turn, self.session.terms.facts.interleaved) if turn else raw

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
                out[which, :, real:] = attend_text(q_bhid[which, :, real:], slots[real:] + begin, own, session.terms)
        return out

    def _incoming(self, n: int, numbers: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> Lanes:
        """A shelf's lanes of new tokens; where a stage may end, no key is turned before a step asks for it."""
        if self.session.drifts:
            return [k_bgjd, v_bgjd, k_bgjd]
        turn = self.session.turn(self.session.k_at[n](numbers), None, k_bgjd.dtype, keys=True)
        return [turned(k_bgjd, turn, self.session.terms.facts.interleaved) if turn else k_bgjd, v_bgjd]

    def _keys(self, n: int, seen: Extended, which: slice | list[int], begin: int, new: int) -> Keys:
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
        return Keys(k, v, numbers, turned=not self.session.drifts)


def _merged(parts: list[Part]) -> Tensor:
    """Parts of one softmax as one answer."""
    out, lse = parts[0]
    working = wide(out.dtype)
    for part in parts[1:]:
        share = torch.sigmoid(part.lse_bhi - lse)[..., None]
        out = torch.lerp(out.to(working), part.out_bhid.to(working), share.to(working))
        lse = torch.logaddexp(lse, part.lse_bhi)
    return out.to(parts[0].out_bhid.dtype)
