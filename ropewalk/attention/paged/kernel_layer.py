"""One layer over pages in an engine's own layout, read by the engine's own kernel: a call for every span.

The kernel knows plain attention of queries to the last keys of each request, or to all. That is what a span is, between
its own rotated queries and its own lane of keys. Where a token sees one span, the kernel's output is the answer. Where
it sees several, their outputs are weighted by the sums that their softmax divides by. Long prompts that see several
spans are gathered and computed as elsewhere.

Legend: t token, h query head, g key head, d head dimension, n page, s token of a page, m span that a token sees.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ropewalk.attention.cache.buffers import PROBED
from ropewalk.attention.paged.layer import PagedLayer
from ropewalk.attention.paged.rows import MOST_NEW, PagedBatch, PagedRequest, PageStages
from ropewalk.attention.problem import LayerTerms
from ropewalk.attention.rotation.rotate import compute_dtype, is_identity, rotation_at
from ropewalk.errors import DoesNotFit
from ropewalk.methods.reach import Span

UNLIMITED = 2**31
ROWS = 128  # queries whose outputs are merged at once: they stay in the processor's cache


class SpanCall(NamedTuple):
    """What a kernel is asked: the queries of each entry, one after the other, see the keys up to `stops`, its last
    query's, and earlier ones one key less each; of these the last `window`, if it is stated."""

    starts: Tensor  # the first query of each entry, and the end, int32
    stops: Tensor  # the keys of each entry that its last query sees, int32
    table: Tensor  # the pages of each entry
    window: int | None
    longest: int  # queries of an entry


class PagedKernel(Protocol):
    """An engine's attention over its pages, [pages, key heads, lanes, tokens, head dimension]."""

    def store(self, pages: Tensor, lane: int, k_tgd: Tensor, v_tgd: Tensor, slot_t: Tensor) -> None:
        """Keys into a lane, values into the last one."""

    sums_chunks: bool  # whether `attend_summed` is the fastest for many queries too

    def rotated(self, x_thd: Tensor, cos_sin_t: Tensor) -> Tensor:
        """Vectors rotated by the cosines and sines of each token."""

    def plan(self, call: SpanCall, *, summed: bool) -> Any:
        """What is worked out once for all layers."""

    def queries(self, q_thd: Tensor, cos_sin_t: Tensor | None, plan: Any) -> Tensor:
        """Rotated queries, as a call takes them."""

    def attend(self, pages: Tensor, lane: int, queries: Tensor, plan: Any, sink_h: Tensor | None) -> Tensor:
        """The output of a call."""

    def attend_summed(self, pages: Tensor, calls: Sequence[tuple[int, Tensor, Any]]) -> tuple[Tensor, Tensor] | None:
        """Outputs [m, t, h, d] and logarithms of sums [m, t, h], at least float32, of calls (lane, queries, plan);
        nothing where the sums are out of its reach."""

    def unpacked(self, lane_ngsd: Tensor, *, values: bool) -> Tensor:
        """Pages of a lane with a vector a token, in order."""

    def packed(self, lane_ngsd: Tensor) -> Tensor:
        """The inverse for keys."""


@dataclass
class TokenGroup:
    """Tokens that see the same spans under the same table, and the calls that compute them."""

    start: int  # the length from which their table is valid
    spans: tuple[int, ...]
    tokens: Tensor | None  # nothing: all of the batch
    calls: list[Any] = field(default_factory=list)
    cos_sin: list[Tensor | None] = field(default_factory=list)
    scale_thd: Tensor | None = None  # what is not in cos_sin
    bias_mth: Tensor | None = None  # of all keys of a span
    requests: list[PagedRequest] = field(default_factory=list)
    stale: tuple[Tensor, Tensor] | None = None  # pages whose keys are rotated again, and their places


@dataclass
class StepPlan:
    """A step, planned once for all layers."""

    key_cos_sin: list[Tensor | None]  # of each lane
    groups: list[TokenGroup]
    chunks: list[PagedRequest]


class KernelLayer(PagedLayer):
    """`PagedLayer` whose pages are in the layout of a kernel; only where `windows_of` says that it can be."""

    def __init__(self, terms: LayerTerms, kernel: PagedKernel) -> None:
        super().__init__(terms)
        windows = windows_of(terms)
        if windows is None:
            raise DoesNotFit.because("reach", "its spans are no calls of a kernel", remedy="take PagedLayer")
        self.windows, self.kernel = windows, kernel
        self._marks = PageStages(0)

    def read(
        self,
        pages: Tensor,
        q_thd: Tensor,
        k_tgd: Tensor,
        v_tgd: Tensor,
        batch: PagedBatch,
        stages: PageStages | None = None,
    ) -> Tensor:
        """Store the new tokens of all requests and return their outputs; marks of pages are the layer's own."""
        if not batch.requests:
            return torch.zeros_like(q_thd)
        with torch.no_grad():
            step = batch.once((id(self), "step"), lambda: self._plan(batch, pages))
            self._store_all(pages, k_tgd, v_tgd, batch, step)
            out_thd = None
            for group in step.groups:
                part = self._read_group(pages, q_thd, batch, group)
                if group.tokens is None:
                    return part
                out_thd = torch.zeros_like(q_thd) if out_thd is None else out_thd
                out_thd[group.tokens] = part
            out_thd = torch.zeros_like(q_thd) if out_thd is None else out_thd
            for request in step.chunks:
                out_thd[request.tokens] = self._read_chunk(pages, q_thd[request.tokens], batch, request)
        return out_thd

    def _store_all(self, pages: Tensor, k_tgd: Tensor, v_tgd: Tensor, batch: PagedBatch, step: StepPlan) -> None:
        for lane, cos_sin in enumerate(step.key_cos_sin):
            rotated = k_tgd if cos_sin is None else self.kernel.rotated(k_tgd, cos_sin)
            self.kernel.store(pages, lane, rotated, v_tgd, batch.slot_t)
        if self.has_stages:
            self.kernel.store(pages, self.unrotated, k_tgd, v_tgd, batch.slot_t)

    def _read_group(self, pages: Tensor, q_thd: Tensor, batch: PagedBatch, group: TokenGroup) -> Tensor:
        if group.stale is not None:
            self._rotate_again(pages, batch, group, *group.stale)
        q_thd = q_thd if group.tokens is None else q_thd[group.tokens]
        queries = q_thd if group.scale_thd is None else (q_thd * group.scale_thd).to(q_thd.dtype)
        calls = zip(group.cos_sin, group.calls, strict=True)
        rotated = [self.terms.weighted(self.kernel.queries(queries, cos_sin, call)) for cos_sin, call in calls]
        lanes = [self.lane_of[span] for span in group.spans]
        if len(lanes) == 1:
            return self.kernel.attend(pages, lanes[0], rotated[0], group.calls[0], self.terms.sink_h)
        parts = self.kernel.attend_summed(pages, list(zip(lanes, rotated, group.calls, strict=True)))
        if parts is None:  # rare: logits that no sum of the kernel can tell
            parted = torch.split(q_thd, [one.new for one in group.requests])
            pairs = zip(parted, group.requests, strict=True)
            return torch.cat([self._read_chunk(pages, part, batch, one) for part, one in pairs])
        out_mthd, sum_mth = parts
        sum_mth = sum_mth if group.bias_mth is None else sum_mth + group.bias_mth
        if self.terms.sink_h is not None:
            sum_mth = torch.cat([sum_mth, self.terms.sink_h.to(sum_mth).expand_as(sum_mth[:1])])
        share_mth = sum_mth.softmax(0)[: len(lanes)]
        if len(q_thd) <= ROWS:
            return (out_mthd * share_mth[..., None]).sum(0).to(q_thd.dtype)
        out_thd = torch.empty_like(q_thd)
        blocks = (torch.split(out_thd, ROWS), torch.split(out_mthd, ROWS, 1), torch.split(share_mth, ROWS, 1))
        for whole, out, share in zip(*blocks, strict=True):
            torch.sum(out * share[..., None], 0, out=whole)
        return out_thd

    def _rotate_again(
        self, pages: Tensor, batch: PagedBatch, group: TokenGroup, page_n: Tensor, place_n: Tensor
    ) -> None:
        """The keys of pages that are rotated by another table, from the unrotated ones."""
        k_ngsd = self.kernel.unpacked(pages[:, :, self.unrotated][page_n], values=False)
        k_tgd = k_ngsd.transpose(1, 2).flatten(0, 1)
        number_t = (place_n[:, None] * batch.size + torch.arange(batch.size)).flatten()
        for lane in range(len(self.stored)):
            key = (id(self), "again", id(group), lane)
            cos_sin = batch.once(key, lambda n=lane: self._cos_sin_of_keys(n, number_t, group.start, pages))  # type: ignore[misc]
            turned = k_tgd if cos_sin is None else self.kernel.rotated(k_tgd, cos_sin)
            pages[:, :, lane][page_n] = self.kernel.packed(turned.unflatten(0, (-1, batch.size)).transpose(1, 2))  # type: ignore[no-untyped-call]

    # Planning a step.

    def _plan(self, batch: PagedBatch, pages: Tensor) -> StepPlan:
        number_t = batch.number_t
        start_t, names = self._stages_of(number_t)
        bounds = [span.bounds(number_t) for span in self.spans]
        stop_mt = torch.stack([stop for _, stop in bounds])
        seen_mt = torch.stack([stop > start for start, stop in bounds])
        code_t = (seen_mt.long() << torch.arange(len(bounds))[:, None]).sum(0) + (start_t << len(bounds))
        groups, chunks = _segments(batch, code_t, stop_mt, seen_mt, UNLIMITED if self.kernel.sums_chunks else MOST_NEW)
        key_cos_sin = [
            self._cos_sin_by_stage(lane, number_t, start_t, names, pages) for lane in range(len(self.stored))
        ]
        if self.has_stages:
            self._mark_new(batch, pages, torch.tensor(names)[start_t])
        made = [
            self._group(batch, pages, names[int(start_t[requests[0].tokens.start])], spans, requests, stop_mt)
            for (_, spans), requests in groups.items()
        ]
        return StepPlan(key_cos_sin, made, chunks)

    def _stages_of(self, number_t: Tensor) -> tuple[Tensor, list[int]]:
        """The index of each token's table, and the lengths from which tables are valid."""
        if not self.has_stages:
            return torch.zeros_like(number_t), [1]
        longest = int(number_t.max()) + 1
        names = [*self.terms.extension.frequencies_or_rope.stages(self.terms.facts, longest)]
        return torch.searchsorted(torch.tensor(names), number_t + 1, right=True) - 1, names

    def _group(
        self,
        batch: PagedBatch,
        pages: Tensor,
        start: int,
        spans: tuple[int, ...],
        requests: list[PagedRequest],
        stop_mt: Tensor,
    ) -> TokenGroup:
        token_t = torch.cat([torch.arange(one.tokens.start, one.tokens.stop) for one in requests])
        whole = len(token_t) == len(batch.number_t)
        number_t = batch.number_t[token_t]
        group = TokenGroup(start, spans, None if whole else token_t.to(pages.device), requests=requests)
        place_e, new_e = [one.place for one in requests], torch.tensor([one.new for one in requests])
        starts = torch.cat([torch.zeros(1, dtype=torch.long), new_e.cumsum(0)]).int()
        table = batch.table_rp if place_e == list(range(len(batch.table_rp))) else batch.table_rp[place_e]
        last_e = torch.tensor([one.tokens.stop - 1 for one in requests])
        folded_t, group.scale_thd = self._scales(number_t, pages)
        for span in spans:
            stops = stop_mt[span][last_e].int()
            call = SpanCall(starts, stops, table, self.windows[span], int(new_e.max()))
            group.calls.append(self.kernel.plan(call, summed=len(spans) > 1))
            at_t = self.spans[span].q_rotated(number_t, self.turns)
            group.cos_sin.append(self._cos_sin(at_t, start, pages, folded_t))
        if len(spans) > 1 and self.terms.extension.biases:
            seen = [self.spans[span] for span in spans]
            nearest = [_distance(span, number_t, span.bounds(number_t)[1] - 1) for span in seen]
            bias_mht = torch.stack([self.terms.bias(distance, number_t) for distance in nearest])
            group.bias_mth = bias_mht.transpose(1, 2).to(pages.device, compute_dtype(pages.dtype))
        if self.has_stages:
            group.stale = self._stale(batch, pages, group, stop_mt)
        return group

    def _scales(self, number_t: Tensor, pages: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The factor of each query: for its cosines and sines where that reaches all of it, or for itself."""
        scale_thd = self.terms.scale(number_t).transpose(0, 1)
        if bool((scale_thd == 1).all()):
            return None, None
        rotating = 2 * len(self.table(1).inv_freq)
        if rotating == self.terms.facts.head_dim and scale_thd.shape[1:] == (1, 1):
            return scale_thd[:, 0], None
        return None, scale_thd.to(pages.device, compute_dtype(pages.dtype))

    def _cos_sin_by_stage(
        self, lane: int, number_t: Tensor, stage_t: Tensor, names: Sequence[int], pages: Tensor
    ) -> Tensor | None:
        """The rotation of new keys, each by the table of its own row."""
        present = sorted(set(stage_t.tolist()))
        if len(present) == 1:
            return self._cos_sin_of_keys(lane, number_t, names[present[0]], pages)
        whole = None
        for stage in present:
            part = self._cos_sin_of_keys(lane, number_t[stage_t == stage], names[stage], pages)
            if part is None:
                return None
            whole = part.new_empty(len(number_t), part.shape[1]) if whole is None else whole
            whole[(stage_t == stage).to(whole.device)] = part
        return whole

    def _cos_sin_of_keys(self, lane: int, number_t: Tensor, start: int, pages: Tensor) -> Tensor | None:
        return self._cos_sin(self.stored[lane].k_rotated(number_t, self.turns), start, pages, None)

    def _cos_sin(self, at_t: Tensor, start: int, pages: Tensor, scale_t1: Tensor | None) -> Tensor | None:
        table = self.table(start)
        if is_identity(at_t, table) and scale_t1 is None:
            return None
        rotation = torch.cat(rotation_at(at_t, table, at_t), -1)
        return (rotation if scale_t1 is None else rotation * scale_t1).to(pages.device, compute_dtype(pages.dtype))

    # Which table the keys of a page are rotated by: all layers with these terms rotate the same pages in a step.

    def _mark_new(self, batch: PagedBatch, pages: Tensor, start_t: Tensor) -> None:
        """Pages with new tokens stay by their table, or get one, where all these tokens are rows of it."""
        self._marks.count(len(pages))
        page_t, offset_t = (x.cpu() for x in batch.places)
        for start in set(start_t.tolist()):
            mine = start_t == start
            self._marks.set(page_t[mine & (offset_t == 0)], start)
        wrong = self._marks.start_of(page_t) != start_t
        self._marks.forget(page_t[wrong])

    def _stale(
        self, batch: PagedBatch, pages: Tensor, group: TokenGroup, stop_mt: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        last_e = torch.tensor([one.tokens.stop - 1 for one in group.requests])
        counts = [-(-stop // batch.size) for stop in stop_mt[list(group.spans)][:, last_e].amax(0).tolist()]
        page_n = torch.cat([batch.table_rp[one.place, :n] for one, n in zip(group.requests, counts, strict=True)]).cpu()
        place_n = torch.cat([torch.arange(n) for n in counts])
        stale = self._marks.stale(page_n, group.start)
        if not stale.any():
            return None
        self._marks.set(page_n, group.start)
        return page_n[stale].long().to(pages.device), place_n[stale]

    def _tokens(self, pages: Tensor, page_n: Tensor, lane: int) -> Tensor:
        lane_ngsd = self.kernel.unpacked(pages[:, :, lane][page_n], values=lane == self.values)
        return lane_ngsd.transpose(0, 1).flatten(1, 2)[None]


UNKNOWN = -1  # the window of a span that no kernel has


def windows_of(terms: LayerTerms) -> list[int | None] | None:
    """The keys that each span sees of those before its end: so many, or all; nothing where no call has these."""
    spans, biases = terms.extension.reach_or_causal.spans(), terms.extension.biases
    windows = [_window(span) for span in spans]
    if UNKNOWN in windows or (biases and (terms.sink_h is not None or terms.facts.softcap is not None)):
        return None
    return windows if all(_has_one_bias(terms, span) for span in spans) else None


def _has_one_bias(terms: LayerTerms, span: Span) -> bool:
    """Whether all keys of a row have the same biases: then they only weigh the span."""
    start, stop = span.bounds(PROBED)
    seen = stop > start
    nearest, furthest = (_distance(span, PROBED, at).where(seen, 0) for at in (stop - 1, start))
    return all(spec.same_between(nearest, furthest, terms.facts) for spec in terms.extension.biases)


def _distance(span: Span, i: Tensor, j: Tensor) -> Tensor:
    return span.q_at(i).double() - span.k_at(j.clamp(min=0))


def _window(span: Span) -> int | None:
    """The width of a span that starts to rise; nothing for one that starts at the first key."""
    start, stop = span.bounds(PROBED)
    rises = start > 0
    if not (rises & (stop > start)).any():
        return None
    width = (stop - start)[rises]
    fits = bool((width == width[0]).all()) and bool((stop[~rises] <= width[0]).all())
    return int(width[0]) if fits and width[0] > 0 else UNKNOWN


def _segments(
    batch: PagedBatch, code_t: Tensor, stop_mt: Tensor, seen_mt: Tensor, most: int
) -> tuple[dict[tuple[int, tuple[int, ...]], list[PagedRequest]], list[PagedRequest]]:
    """Each request's tokens by what they see: those that calls of a kernel compute, by their table and spans, and those
    of long prompts that see several spans."""
    groups: dict[tuple[int, tuple[int, ...]], list[PagedRequest]] = {}
    chunks: list[PagedRequest] = []
    code, seen = code_t.tolist(), seen_mt.T.tolist()
    for request in batch.requests:
        first, end = int(request.tokens.start), int(request.tokens.stop)
        changes = [n for n in range(first + 1, end) if code[n] != code[n - 1]]
        for start, stop in itertools.pairwise([first, *changes, end]):
            spans = tuple(n for n, sees in enumerate(seen[start]) if sees)
            part = _part(request, start - first, stop - first)
            rising = stop - start == 1 or bool((stop_mt[list(spans), start:stop].diff() == 1).all())
            if rising and (len(spans) == 1 or stop - start <= most):
                groups.setdefault((code[start], spans), []).append(part)
            elif stop - start <= MOST_NEW:
                singles = [_part(request, n, n + 1) for n in range(start - first, stop - first)]
                groups.setdefault((code[start], spans), []).extend(singles)
            else:
                chunks.append(part)
    return groups, chunks


def _part(request: PagedRequest, start: int, stop: int) -> PagedRequest:
    """Some of a request's new tokens, as if they were its last ones."""
    first = int(request.tokens.start)
    return PagedRequest(request.place, slice(first + start, first + stop), request.length - request.new + stop)
