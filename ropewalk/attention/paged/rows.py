"""Rows of a batch over pages of keys and values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ropewalk.attention.problem import LayerTerms
from ropewalk.attention.rotation.rotate import Rotation, rotate_few, to_compute_dtype
from ropewalk.attention.torch_kernels.softmax import cap_logits
from ropewalk.methods.reach import Span

# Which rotary table the keys in a page are rotated by, where the table changes with the length of the text.
#
# Unrotated keys are what counts. The rotated copy is made anew where another table is needed: rarely, since a table
# holds for a range of lengths. Requests that share a page at different lengths rotate it in turns, exactly.
#
# Legend: n page.


NO_TABLE = 0  # no table begins at length 0


class PageStages:
    """For every page the length at which the table begins that its keys are rotated by."""

    def __init__(self, pages: int) -> None:
        self._start_n = torch.full((pages,), NO_TABLE)

    def count(self, pages: int) -> None:
        """There are so many pages."""
        if len(self._start_n) != pages:
            self._start_n = torch.full((pages,), NO_TABLE)

    def forget(self, page_n: Tensor) -> None:
        """Tokens were stored in these pages: their copy is no longer whole."""
        self._start_n[page_n.cpu()] = NO_TABLE

    def start_of(self, page_n: Tensor) -> Tensor:
        """Where the tables of these pages begin."""
        return self._start_n[page_n.cpu()]

    def stale(self, page_n: Tensor, start: int) -> Tensor:
        """Which of these pages are not rotated by this table."""
        return self.start_of(page_n) != start

    def set(self, page_n: Tensor, start: int) -> None:
        """These pages are rotated by this table now."""
        self._start_n[page_n.cpu()] = start


# The requests of one step: which of the batch's tokens belong to which, and which pages hold their past.
#
# Legend: t token of the batch, r row (a token that is computed alone), p page of a request.


Result = TypeVar("Result")
MOST_NEW = 8  # new tokens of a request that are computed as rows: one, or a draft of a few


class PagedRequest(NamedTuple):
    """One request: its new tokens in the batch, and its length with them."""

    place: int
    tokens: slice
    length: int

    @property
    def new(self) -> int:
        """How many tokens are new."""
        return int(self.tokens.stop) - int(self.tokens.start)

    @property
    def numbers(self) -> Tensor:
        """The positions of the new tokens."""
        return torch.arange(self.length - self.new, self.length)


class PagedBatch:
    """The requests of one step, for all layers that have the same pages.

        batch = PagedBatch([0, 1, 513], [300, 512], table_rp, slot_t, size=16)

    `starts` are the first new token of each request in the batch, and the end; `lengths` count each request's tokens,
    new ones included. `table_rp` holds the page of every `size` tokens of a request; `slot_t` is where each new token
    is stored: page * size + offset.
    """

    def __init__(
        self, starts: Sequence[int], lengths: Sequence[int], table_rp: Tensor, slot_t: Tensor, *, size: int
    ) -> None:
        pairs = zip(starts, starts[1:], lengths, strict=False)
        requests = [PagedRequest(n, slice(start, end), length) for n, (start, end, length) in enumerate(pairs)]
        self.requests = [request for request in requests if request.new]
        self.table_rp, self.slot_t, self.size = table_rp, slot_t[: starts[-1]], size
        self.rows = [request for request in self.requests if request.new <= MOST_NEW]
        self.chunks = [request for request in self.requests if request.new > MOST_NEW]
        self._results: dict[Hashable, Any] = {}

    @property
    def places(self) -> tuple[Tensor, Tensor]:
        """The page of every new token, and its place there."""
        return self.once("places", lambda: (self.slot_t // self.size, self.slot_t % self.size))

    @property
    def number_t(self) -> Tensor:
        """The position of every new token."""
        return self.once("numbers", lambda: torch.cat([request.numbers for request in self.requests]))

    @property
    def token_r(self) -> Tensor:
        """The tokens that are computed as rows."""
        parts = [request.tokens for request in self.rows]
        return self.once("rows", lambda: torch.cat([torch.arange(part.start, part.stop) for part in parts]))

    @property
    def number_r(self) -> Tensor:
        """The position of every row."""
        return self.once("row numbers", lambda: torch.cat([request.numbers for request in self.rows]))

    @property
    def request_r(self) -> Tensor:
        """The request of every row."""
        counts = [(request.place, request.new) for request in self.rows]
        return self.once("requests", lambda: torch.cat([torch.full((new,), index) for index, new in counts]))

    def pages(self, request: PagedRequest, first: int, end: int) -> Tensor:
        """The pages that hold the tokens from `first` to `end` of a request."""
        return self.table_rp[request.place, first // self.size : -(-end // self.size)].long()

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The result of `compute`, kept for the layers that ask for it again."""
        if key not in self._results:
            self._results[key] = compute()
        result: Result = self._results[key]
        return result


def runs_of(page_n: Tensor) -> list[tuple[int, int]]:
    """Where pages lie next to each other: the first entry of each run, and its end.

    runs_of(torch.tensor([5, 6, 7, 2, 3])) == [(0, 3), (3, 5)]
    """
    edges = [0, *(1 + (page_n.diff() != 1).nonzero().flatten()).tolist(), len(page_n)]
    return [run for run in itertools.pairwise(edges) if run[1] > run[0]]


# Single tokens of many requests, computed together: every page that a row sees is one entry of a few batched products.
#
# No request waits for a longer one, and nothing is padded beyond a page. The entries of all rows lie next to each
# other, and softmax is taken over the entries of each row. An entry's numbers do not depend on the other rows of the
# batch.
#
# Legend: e entry (a page that a row sees by one span), r row, n page, g key head, s token of a page, h query head,
# k query heads of one key head, d head dimension.


RUN = 512  # tokens in pages that lie next to each other: from this many on they are read in place
TOKENS_PER_COPY = 1024  # tokens whose pages are copied at once


class Piece(NamedTuple):
    """Some entries, and their pages: a slice where the pages lie next to each other, which are read in place."""

    entries: slice
    pages: slice | Tensor


class SpanRows(NamedTuple):
    """The pages that rows see by one span: the same for all layers with these terms."""

    lane: int
    rotation: Rotation | None  # of the queries, expanded
    row_e: Tensor
    place_e: Tensor  # the page's place in its request
    page_e: Tensor
    pieces: Sequence[Piece]
    hidden_es: Tensor | None  # tokens that the row does not see; nothing where it sees whole pages
    distance_es: Tensor | None  # effective distances, where there are biases
    number_e: Tensor  # of the row


class RowReads(NamedTuple):
    """What rows read by all spans."""

    rows: int
    spans: Sequence[SpanRows]
    row_e: Tensor


def row_reads(rows: int, spans: Sequence[SpanRows]) -> RowReads:
    """The entries of all spans one after the other; spans without entries are left out."""
    seen = [span for span in spans if len(span.row_e)]
    return RowReads(rows, seen, seen[0].row_e if len(seen) == 1 else torch.cat([span.row_e for span in seen]))


def span_rows(
    span: Span, lane: int, rotation: Rotation | None, batch: PagedBatch, i_r: Tensor, request_r: Tensor, biased: bool
) -> SpanRows:
    """The pages that rows numbered i see by a span."""
    start_r, stop_r = span.bounds(i_r)
    row_e, place_e = _pages_between(start_r, stop_r, batch.size)
    j_es = place_e[:, None] * batch.size + torch.arange(batch.size)
    hidden_es = (j_es < start_r[row_e, None]) | (j_es >= stop_r[row_e, None])
    distance_es = (span.q_at(i_r)[row_e, None] - span.k_at(j_es)).where(~hidden_es, 0) if biased else None
    device = batch.table_rp.device
    page_e = batch.table_rp[request_r[row_e].to(device), place_e.to(device)].long()
    return SpanRows(
        lane,
        rotation,
        row_e.to(device),
        place_e,
        page_e,
        _pieces(page_e, batch.size),
        hidden_es.to(device) if hidden_es.any() else None,
        distance_es,
        i_r[row_e],
    )


def _pages_between(start_r: Tensor, stop_r: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Every page with a token from start to stop: its row, and its place in the row's request."""
    first_r = start_r // size
    count_r = ((stop_r + size - 1) // size - first_r).where(stop_r > start_r, 0)
    row_e = torch.repeat_interleave(torch.arange(len(start_r)), count_r)
    before_r = count_r.cumsum(0) - count_r
    return row_e, torch.arange(len(row_e)) - before_r[row_e] + first_r[row_e]


def _pieces(page_e: Tensor, size: int) -> list[Piece]:
    """All entries, on a CPU in pieces whose copies stay in its cache. Elsewhere one copy is cheaper than to look."""
    if page_e.device.type != "cpu":
        return [Piece(slice(0, len(page_e)), page_e)]
    pieces: list[Piece] = []
    waiting = 0  # the first entry that is not in a piece yet
    for first, end in runs_of(page_e):
        if (end - first) * size >= RUN:
            pieces += _pieces_of_page(page_e, waiting, first, size)
            pieces.append(Piece(slice(first, end), slice(int(page_e[first]), int(page_e[first]) + end - first)))
            waiting = end
    return pieces + _pieces_of_page(page_e, waiting, len(page_e), size)


def _pieces_of_page(page_e: Tensor, first: int, end: int, size: int) -> list[Piece]:
    step = max(1, TOKENS_PER_COPY // size)
    return [Piece(slice(n, min(n + step, end)), page_e[n : min(n + step, end)]) for n in range(first, end, step)]


def attend_rows(terms: LayerTerms, pages: Tensor, q_rhd: Tensor, reads: RowReads) -> Tensor:
    """The output of every row, [rows, heads, value size]; queries are scaled and divided by sqrt(d)."""
    groups, spans = pages.shape[1], reads.spans
    sink_gk = None if terms.sink_h is None else terms.sink_h.view(groups, -1).to(q_rhd.device, q_rhd.dtype)
    logits = [_logits(terms, pages, q_rhd, span) for span in spans]
    weight_egks, total_rgk = _weights(logits[0] if len(logits) == 1 else torch.cat(logits), reads, sink_gk)
    shares = [weight_egks] if len(spans) == 1 else torch.split(weight_egks, [len(span.row_e) for span in spans])
    pairs = zip(spans, shares, strict=True)
    parts = [_products(share, pages, pages.shape[2] - 1, span, transposed=False) for span, share in pairs]
    out_egkd = parts[0] if len(parts) == 1 else torch.cat(parts)
    # In order, entry by entry: `sum` groups its terms by their count, and one row would round otherwise than many.
    out_rgkd = q_rhd.new_zeros(*total_rgk.shape, pages.shape[-1]).index_add_(0, reads.row_e, out_egkd)
    return out_rgkd.div_(total_rgk[..., None]).flatten(1, 2)


def _weights(logit_egks: Tensor, reads: RowReads, sink_gk: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights before they are divided by their sum, and that sum over every row."""
    if reads.rows == 1:
        most_rgk = logit_egks.amax((0, 3))[None]
    else:
        most_egk = logit_egks.amax(-1)
        blank = most_egk.new_full((reads.rows, *most_egk.shape[1:]), -torch.inf)
        most_rgk = blank.scatter_reduce_(0, reads.row_e[:, None, None].expand_as(most_egk), most_egk, "amax")
    if sink_gk is not None:
        most_rgk = torch.maximum(most_rgk, sink_gk)
    most_egk = most_rgk if reads.rows == 1 else most_rgk[reads.row_e]
    weight_egks = logit_egks.sub_(most_egk[..., None]).exp_()
    total_rgk = torch.zeros_like(most_rgk).index_add_(0, reads.row_e, weight_egks.sum(-1))
    return weight_egks, total_rgk if sink_gk is None else total_rgk + torch.exp(sink_gk - most_rgk)


def _logits(terms: LayerTerms, pages: Tensor, q_rhd: Tensor, read: SpanRows) -> Tensor:
    """The logits of a span's entries, minus infinity where a row does not see the token."""
    if read.rotation is not None:
        q_rhd = rotate_few(q_rhd, read.rotation, terms.facts.interleaved)
    q_rgkd = terms.weighted(q_rhd).unflatten(1, (pages.shape[1], -1))  # type: ignore[no-untyped-call]
    logit_egks = _products(q_rgkd[read.row_e], pages, read.lane, read, transposed=True)
    if read.distance_es is not None:
        bias_hes = terms.bias(read.distance_es, read.number_e[:, None].expand_as(read.distance_es))
        bias_ehs = bias_hes.movedim(0, 1).to(logit_egks.device, logit_egks.dtype)
        logit_egks = logit_egks + bias_ehs.expand(-1, terms.facts.heads, -1).unflatten(1, logit_egks.shape[1:3])  # type: ignore[no-untyped-call]
    logit_egks = cap_logits(logit_egks, terms.facts.softcap)
    return logit_egks if read.hidden_es is None else logit_egks.masked_fill_(read.hidden_es[:, None, None], -torch.inf)


def _products(left_egkx: Tensor, pages: Tensor, lane: int, read: SpanRows, *, transposed: bool) -> Tensor:
    """The product of each entry's rows with one lane of its page."""
    width = pages.shape[3] if transposed else pages.shape[4]
    out = left_egkx.new_empty(*left_egkx.shape[:3], width)
    for entries, chosen in read.pieces:
        right_egsd = to_compute_dtype(pages[:, :, lane][chosen])
        torch.matmul(left_egkx[entries], right_egsd.mT if transposed else right_egsd, out=out[entries])
    return out
