"""A table in Markdown, for all pages that are generated here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of words under a head."""
    first, *others = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return "\n".join([first, f"|{'---|' * len(head)}", *others])
