"""Single tokens of many requests, computed together: every page that a row sees is one entry of a few batched products.

No request waits for a longer one, and nothing is padded beyond a page. The entries of all rows lie next to each other,
and softmax is taken over the entries of each row. An entry's numbers do not depend on the other rows of the batch.

Legend: e entry (a page that a row sees by one span), r row, n page, g key head, s token of a page, h query head,
k query heads of one key head, d head dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.attention.paged.batch import PagedBatch
from ropewalk.attention.problem import LayerTerms
from ropewalk.attention.rotation.precision import to_compute_dtype
from ropewalk.attention.rotation.rotate import Rotation, rotate
from ropewalk.attention.torch_kernels.softmax import capped
from ropewalk.reach import Span


RUN = 4  # pages that lie next to each other are read in place from this many on
COPIED = 8  # pages that are copied at once


class Piece(NamedTuple):
    """Some entries, and their pages: a slice where the pages lie next to each other, which are read in place."""

    entries: slice
    pages: slice | Tensor


class SpanRows(NamedTuple):
    """The pages that rows see by one span: the same for all layers with these terms."""

    lane: int
    rotation: Rotation | None  # of the queries
    row_e: Tensor
    place_e: Tensor  # the page's place in its request
    page_e: Tensor
    pieces: Sequence[Piece]
    hidden_es: Tensor | None  # tokens that the row does not see; nothing where it sees whole pages
    distance_es: Tensor | None  # effective distances, where there are biases
    number_e: Tensor  # of the row


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
        _pieces(page_e),
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


def _pieces(page_e: Tensor) -> list[Piece]:
    """All entries, on a CPU in pieces whose copies stay in its cache. Elsewhere one copy is cheaper than to look."""
    if page_e.device.type != "cpu":
        return [Piece(slice(0, len(page_e)), page_e)]
    edges = [0, *(1 + (page_e.diff() != 1).nonzero().flatten()).tolist(), len(page_e)]
    pieces: list[Piece] = []
    waiting = 0  # the first entry that is not in a piece yet
    for first, end in itertools.pairwise(edges):
        if end - first >= RUN:
            pieces += _copied(page_e, waiting, first)
            pieces.append(Piece(slice(first, end), slice(int(page_e[first]), int(page_e[first]) + end - first)))
            waiting = end
    return pieces + _copied(page_e, waiting, len(page_e))


def _copied(page_e: Tensor, first: int, end: int) -> list[Piece]:
    return [Piece(slice(n, min(n + COPIED, end)), page_e[n : min(n + COPIED, end)]) for n in range(first, end, COPIED)]


def attend_rows(terms: LayerTerms, pages: Tensor, q_rhd: Tensor, reads: Sequence[SpanRows]) -> Tensor:
    """The output of every row, [rows, heads, value size]; queries are scaled and divided by sqrt(d)."""
    groups, row_e = pages.shape[1], torch.cat([read.row_e for read in reads])
    sink_gk = None if terms.sink_h is None else terms.sink_h.view(groups, -1).to(q_rhd.device, q_rhd.dtype)
    logit_egks = torch.cat([_logits(terms, pages, q_rhd, read) for read in reads])
    most_rgk = _most(logit_egks, row_e, len(q_rhd), sink_gk)
    weight_egks = logit_egks.sub_(most_rgk[row_e][..., None]).exp_()
    total_rgk = torch.zeros_like(most_rgk).index_add_(0, row_e, weight_egks.sum(-1))
    if sink_gk is not None:
        total_rgk += torch.exp(sink_gk - most_rgk)
    out_rgkd = q_rhd.new_zeros(*most_rgk.shape, pages.shape[-1])
    for read, weight in zip(reads, torch.split(weight_egks, [len(read.row_e) for read in reads]), strict=True):
        out_rgkd.index_add_(0, read.row_e, _products(weight, pages, pages.shape[2] - 1, read, transposed=False))
    return (out_rgkd / total_rgk[..., None]).flatten(1, 2)


def _logits(terms: LayerTerms, pages: Tensor, q_rhd: Tensor, read: SpanRows) -> Tensor:
    """The logits of a span's entries, minus infinity where a row does not see the token."""
    if read.rotation is not None:
        q_rhd = rotate(q_rhd, read.rotation, terms.facts.interleaved)
    q_rgkd = q_rhd.unflatten(1, (pages.shape[1], -1))  # type: ignore[no-untyped-call]
    logit_egks = _products(q_rgkd[read.row_e], pages, read.lane, read, transposed=True)
    if read.distance_es is not None:
        bias_hes = terms.bias(read.distance_es, read.number_e[:, None].expand_as(read.distance_es))
        bias_ehs = bias_hes.movedim(0, 1).to(logit_egks.device, logit_egks.dtype)
        logit_egks = logit_egks + bias_ehs.expand(-1, terms.facts.heads, -1).unflatten(1, logit_egks.shape[1:3])  # type: ignore[no-untyped-call]
    logit_egks = capped(logit_egks, terms.facts.softcap)
    return logit_egks if read.hidden_es is None else logit_egks.masked_fill_(read.hidden_es[:, None, None], -torch.inf)


def _most(logit_egks: Tensor, row_e: Tensor, rows: int, sink_gk: Tensor | None) -> Tensor:
    """The largest logit of every row and head."""
    blank = logit_egks.new_full((rows, *logit_egks.shape[1:3]), -torch.inf)
    most_egk = logit_egks.amax(-1)
    most_rgk = blank.scatter_reduce_(0, row_e[:, None, None].expand_as(most_egk), most_egk, "amax")
    return most_rgk if sink_gk is None else torch.maximum(most_rgk, sink_gk)


def _products(left_egkx: Tensor, pages: Tensor, lane: int, read: SpanRows, *, transposed: bool) -> Tensor:
    """The product of each entry's rows with one lane of its page."""
    width = pages.shape[3] if transposed else pages.shape[4]
    out = left_egkx.new_empty(*left_egkx.shape[:3], width)
    for entries, chosen in read.pieces:
        right_egsd = to_compute_dtype(pages[:, :, lane][chosen])
        torch.matmul(left_egkx[entries], right_egsd.mT if transposed else right_egsd, out=out[entries])
    return out
