"""A method's docstring is its page."""

import re

import pytest

from ropewalk.extension.presets import yarn
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.reach import ReRoPE

from examples import EVERY

SOURCE = re.compile(r"arXiv:\d{4}\.\d{4,5}|kexue\.fm/\d+|https?://|\w+/[\w.-]+,? .*\.py|\d{4}, \"")


@pytest.mark.parametrize("spec", EVERY, ids=str)
def test_every_method_states_idea_formula_and_source(spec):
    page = page_of(spec)
    assert page.idea.endswith(".")
    assert page.formula
    assert SOURCE.search(page.source), page.source


def test_the_parts_of_a_page():
    page = page_of(ReRoPE(window=3))
    assert page.idea.startswith("ReRoPE: effective distances stop at w")
    assert page.formula == "[i-w+1, i+1):   q_at = i, k_at = j\n[0, i-w+1):     q_at = w, k_at = 0"
    assert page.source.startswith("Su 2023, kexue.fm/9708; bojone/rerope")
    assert "w must be below the trained length" in page.notes
    assert page_of(ReRoPE) == page


def test_a_preset_has_a_page_too():
    assert page_of(yarn).idea == "By-parts frequencies and a temperature that follows the factor."
    assert page_of(yarn).source.startswith("Peng et al. 2023")
