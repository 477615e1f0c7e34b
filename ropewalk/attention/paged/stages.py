"""Which rotary table the keys in a page are rotated by, where the table changes with the length of the text.

Unrotated keys are what counts. The rotated copy is made anew where another table is needed: rarely, since a table holds
for a range of lengths. Requests that share a page at different lengths rotate it in turns, exactly.

Legend: n page.
"""

from __future__ import annotations

import torch
from torch import Tensor

NO_TABLE = 0  # no table begins at length 0


class PageStages:
    """For every page the length at which the table begins that its keys are rotated by."""

    def __init__(self, pages: int) -> None:
        self._start_n = torch.full((pages,), NO_TABLE)

    def forget(self, page_n: Tensor) -> None:
        """Tokens were stored in these pages: their copy is no longer whole."""
        self._start_n[page_n.cpu()] = NO_TABLE

    def stale(self, page_n: Tensor, start: int) -> Tensor:
        """Which of these pages are not rotated by this table."""
        return self._start_n[page_n.cpu()] != start

    def set(self, page_n: Tensor, start: int) -> None:
        """These pages are rotated by this table now."""
        self._start_n[page_n.cpu()] = start
