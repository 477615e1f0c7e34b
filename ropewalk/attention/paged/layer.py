"""One layer over pages: keys are rotated when they are stored, once for each different position that spans give them.

A page holds, for each key head, one lane of rotated keys for every different `k_at` of the spans, and a lane of values.
Plain attention, windows, sinks and dual chunks need the space of any engine's cache; ReRoPE and Self-Extend half as
much again. Where the rotary table changes with the row there is one more lane, of unrotated keys.

Legend: n page, g key head, l lane, s token of a page, t token of the batch, h query head, j key, d head dimension.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.attention.cache.buffers import StoredKeys
from ropewalk.attention.dispatch import attend_sequences
from ropewalk.attention.layout.retention import Retention, reach_retention
from ropewalk.attention.layout.segments import SpanKeys
from ropewalk.attention.layout.sequences import SharedLayout, share_results
from ropewalk.attention.paged.rows import (
    PagedBatch,
    PagedRequest,
    PageStages,
    RowReads,
    SpanRows,
    attend_rows,
    row_reads,
    runs_of,
    span_rows,
)
from ropewalk.attention.problem import LayerTerms
from ropewalk.attention.rotation.rotate import (
    Rotation,
    compute_dtype,
    expand_rotation,
    is_identity,
    rotate,
    rotate_few,
    rotation_at,
    to_compute_dtype,
)
from ropewalk.errors import InvalidValue
from ropewalk.extension.static import why_not_in_pages
from ropewalk.methods.frequencies import Table
from ropewalk.methods.positions import Sequential


class PagedLayer(StoredKeys):
    """Attention of one layer, for many requests whose past lies in pages.

        paged = PagedLayer(layer_terms(parse("rerope:window=64"), facts))
        pages = torch.zeros(100, facts.groups, paged.lanes, 16, facts.head_dim)
        out_thd = paged.read(pages, q_thd, k_tgd, v_tgd, batch)  # also stores the new tokens

    Layers with equal terms may share one, each with its own pages.
    """

    def __init__(self, terms: LayerTerms) -> None:
        if not isinstance(terms.extension.positions_or_sequential, Sequential):
            raise InvalidValue("positions", "sequential with pages", terms.extension.positions_or_sequential)
        super().__init__(terms)
        if reason := why_not_in_pages(terms.extension, terms.facts):
            raise reason
        copies = self.copies()
        different = list(dict.fromkeys(copies))
        self.stored = [self.spans[copies.index(copy)] for copy in different]  # a span for each copy of the keys
        self.lane_of = [different.index(copy) for copy in copies]  # of each span

    @property
    def lanes(self) -> int:
        """The lanes of a page: rotated keys, values, and unrotated keys where the table changes."""
        return len(self.stored) + 1 + self.has_stages

    @property
    def values(self) -> int:
        """The lane of the values: the last one."""
        return self.lanes - 1

    @property
    def unrotated(self) -> int:
        """The lane of the unrotated keys, where the table changes: before the values."""
        return self.lanes - 2

    @property
    def retention(self) -> Retention:
        """Which past keys may still be seen; pages that hold only others may be freed."""
        return reach_retention(self.terms.extension.reach_or_causal)

    def read(
        self,
        pages: Tensor,
        q_thd: Tensor,
        k_tgd: Tensor,
        v_tgd: Tensor,
        batch: PagedBatch,
        stages: PageStages | None = None,
    ) -> Tensor:
        """Store the new tokens of all requests and return their outputs, [tokens, heads, value size].

        `stages` belongs to these pages; it is needed where the table changes with the row.
        """
        if not batch.requests:
            return torch.zeros_like(q_thd)
        with torch.no_grad():
            self._store(pages, k_tgd, v_tgd, batch, stages)
            if not batch.chunks:  # then the rows are all tokens in their order
                return self._read_rows(pages, q_thd, batch, stages)
            out_thd = torch.zeros_like(q_thd)
            if batch.rows:
                out_thd[batch.token_r] = self._read_rows(pages, q_thd[batch.token_r], batch, stages)
            for request in batch.chunks:
                out_thd[request.tokens] = self._read_chunk(pages, q_thd[request.tokens], batch, request)
        return out_thd

    # Storing.

    def _store(self, pages: Tensor, k_tgd: Tensor, v_tgd: Tensor, batch: PagedBatch, stages: PageStages | None) -> None:
        page_t, offset_t = batch.places
        pages[:, :, self.values][page_t, :, offset_t] = v_tgd.to(pages.dtype)
        if self.has_stages:
            pages[:, :, self.unrotated][page_t, :, offset_t] = k_tgd.to(pages.dtype)
            _present(stages).forget(page_t)
            return
        for lane in range(len(self.stored)):
            rotation = batch.once((id(self), "keys", lane), lambda n=lane: self._key_rotation(n, batch, pages))  # type: ignore[misc]
            pages[:, :, lane][page_t, :, offset_t] = self._rotated_keys(k_tgd, rotation, batch).to(pages.dtype)

    def _key_rotation(self, lane: int, batch: PagedBatch, pages: Tensor) -> Rotation | None:
        rotation = self._rotation(self.stored[lane].k_rotated(batch.number_t, self.turns), self.table(1), pages)
        return rotation if batch.chunks else self._expanded(rotation)

    def _rotated_keys(self, k_tgd: Tensor, rotation: Rotation | None, batch: PagedBatch) -> Tensor:
        if rotation is None:
            return k_tgd
        return (rotate if batch.chunks else rotate_few)(k_tgd, rotation, self.terms.facts.interleaved)

    def _expanded(self, rotation: Rotation | None) -> Rotation | None:
        return None if rotation is None else expand_rotation(rotation, self.terms.facts.interleaved)

    def _rotation(self, at_t: Tensor, table: Table, pages: Tensor) -> Rotation | None:
        """The rotation to these positions, [tokens, 1, pairs]; nothing where it would change nothing."""
        if is_identity(at_t, table):
            return None
        where = (pages.device, compute_dtype(pages.dtype))
        return Rotation(*(part[:, None].to(*where) for part in rotation_at(at_t, table, at_t)))

    # Reading rows: single tokens of many requests at once.

    def _read_rows(self, pages: Tensor, q_rhd: Tensor, batch: PagedBatch, stages: PageStages | None) -> Tensor:
        queries = self._scaled(q_rhd, batch)
        if not self.has_stages:
            every = torch.arange(len(q_rhd))
            reads = batch.once((id(self), "rows", 1), lambda: self._reads(pages, batch, every, 1))
            return attend_rows(self.terms, pages, queries, reads).to(q_rhd.dtype)
        out_rhd = torch.empty_like(q_rhd)
        for start, chosen in batch.once((id(self), "stages"), lambda: self._rows_by_stage(batch.number_r)):
            reads = batch.once((id(self), "rows", start), lambda r=chosen, n=start: self._reads(pages, batch, r, n))  # type: ignore[misc]
            for read in reads.spans:
                self._rotate_pages(pages, read, batch, _present(stages), start)
            out_rhd[chosen] = attend_rows(self.terms, pages, queries[chosen], reads).to(q_rhd.dtype)
        return out_rhd

    def _reads(self, pages: Tensor, batch: PagedBatch, chosen_r: Tensor, start: int) -> RowReads:
        """What these rows read, under the table that is valid from a length on."""
        i_r, request_r, table = batch.number_r[chosen_r], batch.request_r[chosen_r], self.table(start)
        biased, reads = bool(self.terms.extension.biases), []
        for span, lane in zip(self.spans, self.lane_of, strict=True):
            rotation = self._expanded(self._rotation(span.q_rotated(i_r, self.turns), table, pages))
            reads.append(span_rows(span, lane, rotation, batch, i_r, request_r, biased))
        return row_reads(len(i_r), reads)

    def _rows_by_stage(self, i_r: Tensor) -> list[tuple[int, Tensor]]:
        """The length from which each table is valid, with the rows of this table."""
        starts = torch.tensor(self.terms.extension.frequencies_or_rope.stages(self.terms.facts, int(i_r.max()) + 1))
        stage_r = torch.searchsorted(starts, i_r + 1, right=True) - 1
        return [(int(starts[n]), (stage_r == n).nonzero().flatten()) for n in sorted(set(stage_r.tolist()))]

    def _rotate_pages(self, pages: Tensor, read: SpanRows, batch: PagedBatch, stages: PageStages, start: int) -> None:
        """Rotate the keys of the pages that are not rotated by this table yet, in all lanes."""
        stale_e = stages.stale(read.page_e, start)
        if not stale_e.any():
            return
        page_n, place_n = read.page_e[stale_e.to(read.page_e.device)], read.place_e[stale_e]
        k_ngsd = pages[:, :, self.unrotated][page_n]
        for lane in range(len(self.stored)):
            key = (id(self), "pages", lane, start, tuple(place_n.tolist()))
            rotation = batch.once(key, lambda n=lane: self._page_rotation(n, place_n, start, pages))  # type: ignore[misc]
            rotated = k_ngsd if rotation is None else rotate(k_ngsd, rotation, self.terms.facts.interleaved)
            pages[:, :, lane][page_n] = rotated
        stages.set(page_n, start)

    def _page_rotation(self, lane: int, place_n: Tensor, start: int, pages: Tensor) -> Rotation | None:
        """The rotation of all tokens of pages, [pages, 1, tokens, pairs]."""
        at_n = (place_n[:, None] * pages.shape[3] + torch.arange(pages.shape[3])).flatten()
        rotation = self._rotation(self.stored[lane].k_rotated(at_n, self.turns), self.table(start), pages)
        if rotation is None:
            return None
        return Rotation(*(part.view(len(place_n), 1, pages.shape[3], -1) for part in rotation))

    def _scaled(self, q_rhd: Tensor, batch: PagedBatch) -> Tensor:
        """Queries in the type to compute with, times the scales, divided by sqrt(d)."""
        wide = to_compute_dtype(q_rhd) / math.sqrt(q_rhd.shape[-1])
        if not self.terms.extension.scales:
            return wide
        scale_rhd = batch.once((id(self), "scale"), lambda: self.terms.scale(batch.number_r).transpose(0, 1))
        return wide * scale_rhd.to(wide.device, wide.dtype)

    # Reading a chunk of one request.

    def _read_chunk(self, pages: Tensor, q_thd: Tensor, batch: PagedBatch, request: PagedRequest) -> Tensor:
        keys = [self._span_keys(pages, batch, request, n) for n in range(len(self.spans))]
        shared = batch.once((id(self), "chunk", request.place, request.length), SharedLayout)
        with torch.autocast(q_thd.device.type, enabled=False), share_results(shared):
            out_bhid = attend_sequences(q_thd.transpose(0, 1)[None], request.numbers, keys, self.terms)
        return out_bhid[0].transpose(0, 1)

    def _span_keys(self, pages: Tensor, batch: PagedBatch, request: PagedRequest, index: int) -> SpanKeys:
        """What the chunk can see by a span: only these pages are read, since others may have been freed."""
        start, stop = self.spans[index].bounds(request.numbers)
        first, end = int(start[0]), max(int(start[0]), int(stop[-1]))
        lane = self.unrotated if self.has_stages else self.lane_of[index]
        page_n, offset = batch.pages(request, first, end), first % batch.size
        lanes = (self._tokens(pages, page_n, n) for n in (lane, self.values))
        k, v = (lane_bgjd[:, :, offset : offset + end - first] for lane_bgjd in lanes)
        return SpanKeys(k, v, torch.arange(first, end), rotated=not self.has_stages)

    def _tokens(self, pages: Tensor, page_n: Tensor, lane: int) -> Tensor:
        """One lane of some pages as a sequence, [1, g, tokens, d]."""
        return _tokens(pages, page_n, lane)


def _present(stages: PageStages | None) -> PageStages:
    if stages is None:
        raise InvalidValue("stages", "stated where the table changes with the row", None)
    return stages


def _tokens(pages: Tensor, page_n: Tensor, lane: int) -> Tensor:
    """One lane of some pages as a sequence, [1, g, tokens, d]."""
    lane_gnsd = pages[:, :, lane].transpose(0, 1)
    if pages.device.type != "cpu":
        return lane_gnsd[:, page_n].flatten(1, 2)[None]
    out_gnsd = pages.new_empty(len(lane_gnsd), len(page_n), *lane_gnsd.shape[2:])
    for first, end in runs_of(page_n):  # a few large copies: five times as fast as page by page
        start = int(page_n[first])
        out_gnsd[:, first:end] = lane_gnsd[:, start : start + end - first]
    return out_gnsd.flatten(1, 2)[None]
