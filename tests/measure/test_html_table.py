"""The HTML of a result: escaped, well-formed, without colours of its own."""

import re
from html.parser import HTMLParser

from hypothesis import given, strategies as st

from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.result import STYLE, as_html

TEXT = st.text(max_size=20)


class Reader(HTMLParser):
    """Cells and paragraphs, as a browser reads them; every tag must be closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.cells, self.paragraphs, self.tags = [], [], [], set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "p":
            self.paragraphs.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data
        if "p" in self.open:
            self.paragraphs[-1] += data


@given(TEXT, st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3), TEXT)
def test_a_browser_reads_what_was_written(title, rows, sentence):
    page = Reader()
    page.feed(as_html(title, PageTable(("a", "b"), tuple(rows), ends_in_words=True), [sentence]))
    page.close()
    assert page.open == []
    assert page.cells == ["a", "b", *(text for row in rows for text in row)]
    assert page.paragraphs == [title, sentence]
    assert page.tags == {"style", "div", "p", "b", "table", "tr", "th", "td"}


def test_it_takes_the_colours_of_its_page():
    """Text is the page's, the ground is transparent, lines are a grey that shows on white and on black."""
    assert re.findall(r"(?:color|background): ([^;}]+)", STYLE) == ["inherit", "transparent"]
    assert "rgba(128, 128, 128, 0.4)" in STYLE
