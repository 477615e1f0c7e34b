"""Text arrives token by token, whole characters only, and never beyond a stop text."""

import pytest
from hypothesis import given, settings, strategies as st
from transformers import AutoTokenizer

from ropewalk.models import DEFAULT
from ropewalk.serve.generation.generation import TextWriter

TOKENIZER = AutoTokenizer.from_pretrained(DEFAULT)


def written(text, stop=()):
    writer = TextWriter(TOKENIZER, stop)
    out = []
    for token in TOKENIZER(text, add_special_tokens=False)["input_ids"]:
        out.append(writer.push(token))
        if writer.stopped:
            return out
    return [*out, writer.finish()]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_the_deltas_are_the_text(text):
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert "".join(written(text)) == TOKENIZER.decode(ids, skip_special_tokens=True)


@settings(max_examples=300, deadline=None)
@given(st.text("ab \nü", max_size=30), st.lists(st.text("ab \nü", min_size=1, max_size=4), min_size=1, max_size=3))
def test_an_answer_ends_before_the_stop_text_that_is_whole_first(text, stop):
    """However the text is cut into tokens."""
    ends = [(text.find(one) + len(one), text.find(one)) for one in stop if one in text]
    assert "".join(written(text, stop)) == text[: min(ends)[1] if ends else len(text)]


def test_nothing_is_held_back_that_cannot_become_a_stop_text():
    assert "".join(written("one two", ["zzz"])[:-1]) == "one two"


@pytest.mark.parametrize("text", ["日本語", "🙂🙃", "naïve café", "a\ufffdb"])
def test_characters_of_several_tokens_come_whole(text):
    deltas = written(text)
    assert "".join(deltas) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in delta for delta in deltas)
