"""A result as a small piece of HTML for a notebook: title, table, sentences.

It has no colours of its own, so that it is readable on a light and on a dark page; everything in it is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ropewalk.measure.report.html_page import PageTable

STYLE = """<style>
.ropewalk {overflow-x: auto}
.ropewalk p {max-width: 60em; margin: 0.5em 0}
.ropewalk table {border-collapse: collapse; font-size: 0.9em}
.ropewalk th, .ropewalk td {padding: 0.2em 0.8em 0.2em 0; text-align: right; vertical-align: top;
  color: inherit; background: transparent; border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.4)}
.ropewalk .words {text-align: left}
</style>"""


def as_html(title: str, table: PageTable, sentences: Sequence[str]) -> str:
    """All of it; words are aligned to the left, numbers to the right."""
    words = {0, len(table.head) - 1} if table.ends_in_words else {0}
    rows = [_row("th", table.head, words), *(_row("td", row, words) for row in table.rows)]
    begin = f'<div class="ropewalk"><p><b>{escape(title)}</b></p>'
    paragraphs = [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    return "\n".join([STYLE, begin, "<table>", *rows, "</table>", *paragraphs, "</div>"])


def _row(tag: str, texts: Sequence[str], words: set[int]) -> str:
    kinds = [' class="words"' if column in words else "" for column in range(len(texts))]
    cells = (f"<{tag}{kind}>{escape(text)}</{tag}>" for kind, text in zip(kinds, texts, strict=True))
    return f"<tr>{''.join(cells)}</tr>"
