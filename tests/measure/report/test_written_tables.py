"""Files that other programs read: no cell is computed, no name is layout."""

import csv
import io
from html import unescape

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from ropewalk.measure.report.written_tables import (
    CONTROLS,
    PageTable,
    code,
    code_block,
    csv_text,
    latex_table,
    markdown_table,
    prose,
)
from ropewalk.measure.result import as_html

from measure.latex import read_table

FORMULAS = ["=1+1", "+1+1", "-1-1", "@SUM(A1)", "\uff1d1+1", "-x", "=cmd|' /C calc'!A0"]
HOSTILE = ["a|b", "`x`", "``", "<script>", "[x](http://e)", "a\nb\r\n# c", "\\", "![i](http://e)", "`a", "b`", "</td>"]
HOSTILE += ["a | b`|`", "x]\n\n[x]: http://e", "<http://e>", "\\`<b>", "[/b]", "[red]x", "\x1b[31m"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text):
    ((cell, *_),) = csv.reader(io.StringIO(csv_text([[text, "end"]]), newline=""))
    assert cell == f"'{text}"


@pytest.mark.parametrize("text", ["\t=1", "\r=1", "\n=1", "a\r\nb", "\0=1"])
def test_a_cell_has_one_line(text):
    ((cell, *_),) = csv.reader(io.StringIO(csv_text([[text, "end"]]), newline=""))
    assert cell == repr(text)[1:-1]


def test_numbers_stay_numbers():
    rows = [[-1.5, 2, "-0.25", "+3", "-1e-5", None, "yarn:factor=4", "base model"]]
    assert csv_text(rows) == "-1.5,2,-0.25,+3,-1e-5,,yarn:factor=4,base model\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_no_layout_of_markdown(name):
    """Read again, the page has the cells, one block of code, and neither links nor HTML."""
    page = "\n\n".join(
        [
            f"# About {code(name)} today",
            markdown_table([("what", "why"), (code(name), prose(name)), (code("last"), "end")]),
            code_block(f"ropewalk {name}\n```\n# no heading", "bash"),
        ]
    )
    read = MarkdownIt("commonmark").enable("table").parse(page)
    kinds = [token.type for token in read]
    inside = {child.type for token in read for child in token.children or ()}
    assert kinds.count("heading_open") == kinds.count("table_open") == kinds.count("fence") == 1
    assert (kinds.count("tr_open"), kinds.count("td_open")) == (3, 4)
    assert not {"html_block", "paragraph_open"} & set(kinds)
    assert inside <= {"text", "code_inline"}
    title = next(token for token in read if token.type == "inline")
    shown = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)
    assert title.children[1].content.strip() == shown


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_no_layout_of_pages_and_terminals(name):
    rows = PageTable(("extension", "loss"), ((name, "1"),))
    page = as_html(name, rows, [name])
    assert "<script" not in page
    assert "</td>" not in page.replace("</td></tr>", "").replace("</td><td", "")
    assert "\x1b" not in page or name in unescape(page)
    written = Console(markup=False, width=200, file=io.StringIO())
    written.print(rows.for_terminal(name))
    assert name.split("\n")[0].strip()[:3] in written.file.getvalue()
    assert "extension" in written.file.getvalue()


def test_a_table_in_latex():
    head, rows = ("extension", "loss [95% CI]", "verdict"), (("a_b", "-0.10 [-0.2, +0.0]", "worse"), ("base", "2", "-"))
    text = latex_table(PageTable(head, rows, ends_in_words=True), "M & N: 2", {"a", "a_b"}, "made today")
    assert r"\texttt{a\_b} & $-$0.10 [$-$0.2, +0.0] & worse \\" in text.splitlines()
    assert r"extension & loss [95\% CI] & verdict \\" in text.splitlines()
    assert r"\caption{M \& N: 2}" in text.splitlines()
    assert text.startswith("% made today\n% \\usepackage{booktabs,graphicx}\n\\begin{table}\n")
    assert read_table(text) == ("M & N: 2", "lrl", [head, *rows])
    assert read_table(latex_table(PageTable(("x",), (("1",),)), "", (), ""))[1] == "l"


@pytest.mark.parametrize("name", [*HOSTILE, "{", r"\end{table}", "50% #1 $x_2^3$ ~&", "a & b", r"x \\"])
def test_a_name_is_nothing_but_a_name_in_latex(name):
    for names in ({name}, ()):
        rows = ((name, f"{name}, within 8"), ("x", "1"))
        caption, _, found = read_table(latex_table(PageTable(("extension", "loss"), rows), name, names, name))
        shown = name.translate(CONTROLS)
        assert (caption, found[1]) == (shown, (shown, f"{shown}, within 8"))
