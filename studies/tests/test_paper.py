"""The study as a paper: of the sentences of today, and at most twelve pages."""

import re

import pytest

from studies import paper
from studies.findings.listing import findings

LARGEST = 1_000_000  # bytes


def test_the_paper_is_of_today():
    assert paper.mark_of(paper.PAPER) == paper.mark()
    assert paper.PAPER.stat().st_size < LARGEST


def test_it_has_every_finding_and_the_six_parts():
    text = paper.source()
    for one in findings():
        assert f"{one.label}. " in text
        assert one.picture in text
    heads = re.findall(r"^= (.+)$", text, re.MULTILINE)
    assert heads == [
        *("Question", "What holds on a real model", "Models", "Methods of measuring", "The findings"),
        *("Errors found in the articles", "Limits", "How to repeat it"),
    ]


@pytest.mark.parametrize(
    ("words", "typst"),
    [
        ("a # b_c", r"a \# b\_c"),
        ("`yarn:factor=8` is *one* of **two**", '#raw("yarn:factor=8") is #emph[one] of #strong[two]'),
        ("-0.1 [-0.2, 3 %] of 8-x", r"−0.1 \[−0.2, 3~%\] of 8\-x"),
    ],
)
def test_words_are_set_as_they_are(words, typst):
    assert paper._set(words) == typst


def test_no_paper_has_no_mark(tmp_path):
    assert paper.mark_of(tmp_path / "none.pdf") == ""
    (tmp_path / "other.pdf").write_bytes(b"%PDF-1.7 drawn from nothing")
    assert paper.mark_of(tmp_path / "other.pdf") == ""


def test_it_is_written_in_at_most_twelve_pages(tmp_path):
    typst = pytest.importorskip("typst", reason="the paper needs pip install -r studies/requirements.txt")
    paper.write(tmp_path / "study.pdf")
    assert paper.mark_of(tmp_path / "study.pdf") == paper.mark()
    source = paper.RESULTS / "study-of-a-test.typ"
    source.write_text(paper.source(), "utf-8")
    try:
        shown = typst.compile(str(source), root=str(paper.RESULTS), format="png", ppi=20, ignore_system_fonts=True)
    finally:
        source.unlink()
    assert 6 <= len(shown) <= paper.PAGES
