"""Where each token begins in the text, whatever it is cut into."""

import pytest
from hypothesis import given, settings, strategies as st

from ropewalk.hf.checkpoint.tokens import INCOMPLETE
from ropewalk.serve.generation.request import Token
from ropewalk.serve.responses import TextPlace, completion_logprobs

from serve.fake_engine import tokenizer


@settings(deadline=None)
@given(st.text("ab é中🎉\n", min_size=1, max_size=30), st.integers(1, 20))
def test_a_token_is_where_its_offset_says(text, cut):
    read = tokenizer()
    ids = read(text, add_special_tokens=False)["input_ids"]
    tokens = [Token(id, -1.0) for id in ids]
    first, place = completion_logprobs(tokens[:cut], read.decode, TextPlace())
    second, place = completion_logprobs(tokens[cut:], read.decode, place)
    strings, offsets = first["tokens"] + second["tokens"], first["text_offset"] + second["text_offset"]
    assert place == TextPlace(len(text))
    assert offsets == sorted(offsets)
    for string, offset in zip(strings, offsets, strict=True):
        assert INCOMPLETE in string or text[offset : offset + len(string)] == string


@pytest.mark.parametrize("count", [1, 20])
def test_bytes_that_never_become_a_character_are_counted_too(count):
    read = tokenizer()
    byte = read("é", add_special_tokens=False)["input_ids"][-1]
    _, place = completion_logprobs([Token(byte, -1.0)] * count, read.decode, TextPlace())
    assert place.offset + len(place.pending) == count
