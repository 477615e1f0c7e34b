"""Bodies: what is no JSON object is refused in one sentence."""

import contextlib
import json
import time

import pytest
from hypothesis import given, strategies as st

from ropewalk.errors import RopewalkError
from ropewalk.serve.requests import parse_body

WRONG: list[tuple[bytes, str]] = [
    (b"", "must be JSON"),
    (b"{", "must be JSON"),
    (b"{'a': 1}", "must be JSON"),
    (b'{"a": 1,}', "must be JSON"),
    (b'{"a": NaN}', "finite"),
    (b'{"a": -Infinity}', "finite"),
    (b'{"a": 1e999}', "finite"),
    (b'{"a": ' + b"9" * 5000 + b"}", "must be JSON"),
    (b"[" * 100_000, "must be JSON"),
    (b'{"a":' * 100_000, "must be JSON"),
    (b'{"a": 1, "a": 2}', "this key is there twice"),
    (b"\xff\xfe{\x00}\x00", "UTF-8"),
    (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
    (rb'{"a": "\ud800"}', "surrogate"),
    (rb'{"\udfff": 1}', "surrogate"),
    (b"[1]", "an object, got a list"),
    (b'"x"', "an object, got text"),
    (b"5", "an object, got a number"),
    (b"null", "an object, got null"),
    (b"true", "an object, got true or false"),
]


@pytest.mark.parametrize(("body", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_object_is_refused(body, message):
    with pytest.raises(RopewalkError, match="body") as refused:
        parse_body(body)
    assert message in str(refused.value).replace("a JSON object", "an object")
    assert len(str(refused.value)) < 1000


def test_a_pair_of_halves_is_a_character():
    assert parse_body(rb'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}


def test_many_keys_take_no_time():
    body = json.dumps({f"k{n}": n for n in range(90_000)})[:-1] + ', "k89999": 0}'
    begun = time.process_time()
    with pytest.raises(RopewalkError, match="k89999"):
        parse_body(body.encode())
    assert time.process_time() - begun < 5  # not the square of their number: that takes an hour


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.nightly
@given(st.dictionaries(st.text(), values))
def test_every_object_is_read_as_it_was_written(value):
    assert parse_body(json.dumps(value).encode()) == value


@given(st.binary(max_size=60))
def test_whatever_comes_is_an_object_or_refused(body):
    with contextlib.suppress(RopewalkError):
        assert isinstance(parse_body(body), dict)
