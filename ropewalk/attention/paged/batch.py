"""The requests of one step: which of the batch's tokens belong to which, and which pages hold their past.

Legend: t token of the batch, r row (a token that is computed alone), p page of a request.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

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
        return self.once("rows", lambda: _indices(request.tokens for request in self.rows))

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


def _indices(slices: Any) -> Tensor:
    return torch.cat([torch.arange(part.start, part.stop) for part in slices])
