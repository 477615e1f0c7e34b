"""Tables of words, as a terminal, a page, Markdown and CSV have them. Names in them may be anybody's.

A spreadsheet takes a cell that begins with one of a few signs for a formula, and computes it. Markdown takes many signs
for layout, links and HTML.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

from rich.table import Table

from ropewalk.extension.citations import in_latex

FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # and the wide forms of these
CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), 127)}
TICKS = re.compile("`+")
MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


class PageTable(NamedTuple):
    """Words in rows; `ends_in_words`: the last column is text and may take several lines."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ends_in_words: bool = False

    def for_terminal(
        self,
        title: str = "",
        *,
        words: Collection[int] = (0,),
        whole: Collection[int] = (),
        long: Literal["fold", "ellipsis"] = "fold",
        space: int = 1,
    ) -> Table:
        """For a terminal: columns of `words` begin at the left, `whole` ones stay so, `long` cells fold or are cut."""
        drawn = Table(title=title or None, title_justify="left", box=None, padding=(0, space, 0, 0))
        for column, name in enumerate(self.head):
            justify: Literal["left", "right"] = "left" if column in words else "right"
            drawn.add_column(name, justify=justify, overflow=long, no_wrap=column in whole)
        for row in self.rows:
            drawn.add_row(*row)
        return drawn


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV. A text that a spreadsheet would compute gets an apostrophe before it; numbers stay numbers."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([list(map(_inert, row)) for row in rows])
    return text.getvalue()


def _inert(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    written = cell.translate(CONTROLS)
    return f"'{written}" if written.startswith(FORMULA) and not _is_number(written) else written


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def latex_table(table: PageTable, caption: str, names: Collection[str], comment: str) -> str:
    """A table that floats, with the rules of booktabs, and shrinks to the width of a line where it is wider.

    Cells that begin with one of the names have it as code.
    """
    words = "l" if table.ends_in_words else "r"
    spec = ("l" + "r" * (len(table.head) - 2) + words)[: len(table.head)]
    head, *rows = [f"{' & '.join(_in_latex(cell, names) for cell in row)} \\\\" for row in (table.head, *table.rows)]
    lines = [
        f"% {comment.translate(CONTROLS)}",
        "% \\usepackage{booktabs,graphicx}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{_in_latex(caption)}}}",
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{{spec}}}",
        *["\\toprule", head, "\\midrule", *rows, "\\bottomrule"],
        "\\end{tabular}}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _in_latex(cell: str, names: Collection[str] = ()) -> str:
    name = max((name for name in names if re.match(re.escape(name) + r"($|,? )", cell)), key=len, default="")
    words = MINUS.sub("$-$", in_latex(cell[len(name) :].translate(CONTROLS)))
    return rf"\texttt{{{in_latex(name.translate(CONTROLS))}}}{words}" if name else words


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of words as Markdown; the first is the head."""
    piped = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    head, *others = [f"| {' | '.join(row)} |" for row in piped]
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *others])


def prose(text: str) -> str:
    """Words in Markdown in which nothing begins HTML, code or a link."""
    for sign in ("\\", "`", "<", "]("):
        text = text.replace(sign, f"{sign[:-1]}\\{sign[-1]}")
    return " ".join(text.split())


def code(name: str) -> str:
    """A name as code in Markdown, where nothing in it means anything."""
    shown = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)
    fence = "`" * (1 + max(map(len, TICKS.findall(shown)), default=0))
    apart = " " if shown[:1] in ("`", "") or shown[-1:] == "`" else ""
    return f"{fence}{apart}{shown}{apart}{fence}"


def code_block(text: str, language: str) -> str:
    """Lines as code in Markdown, which no line of theirs ends."""
    fence = "`" * max(3, 1 + max(map(len, TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"
