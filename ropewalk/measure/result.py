"""What `compare`, `fit` and `diagnose` return: a few lines in print, a table in a notebook, every number on request."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from ropewalk.extension.notation import BARE
from ropewalk.folders import write_whole
from ropewalk.measure.report.titles import corpus_of, date_of, model_of
from ropewalk.measure.report.written_tables import PageTable, csv_text, latex_table, markdown_table, prose
from ropewalk.methods.spec import Json

# A result in a notebook has no colours of its own, so that it is readable on a light and on a dark page.
STYLE = """<style>
.ropewalk {overflow-x: auto}
.ropewalk p {max-width: 60em; margin: 0.5em 0}
.ropewalk table {border-collapse: collapse; font-size: 0.9em}
.ropewalk th, .ropewalk td {padding: 0.2em 0.8em 0.2em 0; text-align: right; vertical-align: top;
  color: inherit; background: transparent; border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.4)}
.ropewalk .words {text-align: left}
</style>"""
ROWS_SHOWN, RESULT_WIDTH = 5, 100  # rows and columns of a result in print
TERMINAL_WIDTH = 80


class MeasuredResult(ABC):
    """A result. Print it, show it in a notebook, `write` it, or take `rows`, `to_dict()`, `to_csv()`, `to_latex()`."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What was measured."""

    @property
    @abstractmethod
    def sentences(self) -> list[str]:
        """What follows from it."""

    @property
    @abstractmethod
    def table(self) -> PageTable:
        """The main numbers, as words."""

    @property
    @abstractmethod
    def brief(self) -> PageTable:
        """The few columns that are printed."""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Every mean as a record: for `pandas.DataFrame(result.rows)`."""

    @abstractmethod
    def for_terminal(self) -> Iterator[RenderableType]:
        """What the command prints: tables and paragraphs for a terminal of 80 columns."""

    @abstractmethod
    def to_dict(self) -> Json:
        """Everything, as the JSON file of the report has it."""

    @abstractmethod
    def write(self, folder: str | Path, *, command: str = "", pictures: str = "") -> Path:
        """Write the report with its figures and files, and return the path of its page.

        `pictures` are formats, such as "pdf,png": matplotlib draws each figure in each of them.
        """

    def to_markdown(self) -> str:
        """The title, the main numbers and what follows from them, for a page in Markdown."""
        rows = [[prose(cell) for cell in row] for row in (self.table.head, *self.table.rows)]
        return "\n\n".join([f"**{prose(self.title)}**", markdown_table(rows), *map(prose, self.sentences)])

    def to_csv(self, path: str | Path | None = None) -> str:
        """The rows as CSV, which is also written to a file if a path is passed."""
        rows = self.rows
        text = csv_text([list(rows[0]), *(list(row.values()) for row in rows)])
        if path is not None:
            write_whole(Path(path), text)
        return text

    def to_latex(self, path: str | Path | None = None, *, brief: bool = False) -> str:
        """The table in LaTeX (with booktabs and graphicx), which is also written to a file if a path is passed.

        It has all columns that a notebook shows, or under `brief` the few that are printed.
        """
        record = self.to_dict()
        made, table = record["made"], self.brief if brief else self.table
        versions = ", ".join(f"{name} {number}" for name, number in made.get("versions", {}).items())
        texts = f"{len(record['projects'])} of " if record.get("projects") else ""
        comment = f"{versions}; texts: {texts}{corpus_of(record['marks'])}; {date_of(made)}"
        names = {name for row in self.rows if " " not in (name := row["extension"])} - {BARE}  # lines, set as code
        caption = f"{model_of(made)}: {self.title[0].lower()}{self.title[1:]}"
        text = latex_table(table, caption, names, comment)
        if path is not None:
            write_whole(Path(path), text)
        return text

    def __repr__(self) -> str:
        words = textwrap.fill(" ".join(self.sentences[:1]), RESULT_WIDTH)
        return "\n".join([self.title, *aligned(self.brief), words])

    def _repr_html_(self) -> str:
        return as_html(self.title, self.table, self.sentences)


def aligned(table: PageTable, most: int = ROWS_SHOWN) -> list[str]:
    """The head and the first rows as lines of text, numbers to the right; the last says how many are left out."""
    rows = [table.head, *table.rows[:most]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths, table.ends_in_words) for row in rows]
    more = len(table.rows) - most
    return [*lines, f"  ... and {more} more"] if more > 0 else lines


def _line(row: Sequence[str], widths: Sequence[int], ends_in_words: bool) -> str:
    left = {0, len(row) - 1} if ends_in_words else {0}
    cells = [
        text.ljust(width) if column in left else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"  {'  '.join(cells)}".rstrip()


def as_html(title: str, table: PageTable, sentences: Sequence[str]) -> str:
    """Title, table and sentences, all escaped; words are aligned to the left, numbers to the right."""
    words = {0, len(table.head) - 1} if table.ends_in_words else {0}
    rows = [_row("th", table.head, words), *(_row("td", row, words) for row in table.rows)]
    begin = f'<div class="ropewalk"><p><b>{escape(title)}</b></p>'
    paragraphs = [f"<p>{escape(sentence)}</p>" for sentence in sentences]
    return "\n".join([STYLE, begin, "<table>", *rows, "</table>", *paragraphs, "</div>"])


def _row(tag: str, texts: Sequence[str], words: set[int]) -> str:
    kinds = [' class="words"' if column in words else "" for column in range(len(texts))]
    cells = (f"<{tag}{kind}>{escape(text)}</{tag}>" for kind, text in zip(kinds, texts, strict=True))
    return f"<tr>{''.join(cells)}</tr>"
