"""BM25, by hand and by what has to hold for any texts."""

import math

import pytest
from hypothesis import given, strategies as st

from ropewalk.measure.material.passage_search import scores

WORDS = st.sampled_from(["the", "pass", "key", "is", "a", "door", "of", "oak"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=6)


def test_by_hand():
    """Three texts of 4, 2 and 6 words; "key" stands in two of them, once and twice, "oak" in none."""
    texts = ["a key, a door", "the door", "key to the KEY of it"]
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    first = idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 4 / 4))
    third = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 6 / 4))
    assert scores("Key? Oak!", texts) == pytest.approx([first, 0, third])


def test_chinese_is_read_by_its_characters():
    found = scores("密码是什么？", ["天气很好", "密码是 123", "Password 123"])
    assert found[1] > found[0] == found[2] == 0


@given(TEXTS, st.lists(WORDS, min_size=1, max_size=5).map(" ".join))
def test_more_of_what_is_asked_for_is_better_and_what_has_none_of_it_has_no_score(texts, question):
    found = scores(question, texts)
    asked = set(question.split())
    for text, score in zip(texts, found, strict=True):
        assert (score > 0) == bool(asked & set(text.split()))
    shuffled = scores(question, [" ".join(reversed(text.split())) for text in texts])
    assert shuffled == pytest.approx(found)  # order does not matter
