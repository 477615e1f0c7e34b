"""Bodies: what is no JSON object is refused in one sentence."""

import contextlib
import json
import time

import pytest
from hypothesis import given, strategies as st

from ropewalk.errors import RopewalkError
from ropewalk.serve.api.requests.body import parsed

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
        parsed(body)
    assert message in str(refused.value).replace("a JSON object", "an object")
    assert len(str(refused.value)) < 1000


def test_a_pair_of_halves_is_a_character():
    assert parsed(rb'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}


MANY = {
    "texts": b'{"stop": [' + b",".join([b'"x"'] * 600_000) + b"]}",
    "numbers": b'{"prompt": [' + b",".join([b"1"] * 600_000) + b"]}",
    "names": b"{" + b",".join(b'"k%d":0' % n for n in range(300_000)) + b"}",
    "lists": b'{"a": [' + b",".join([b"[]"] * 300_000) + b"]}",
    "deep lists": b'{"a":' + b"[" * 600_000 + b"]" * 600_000 + b"}",
    "objects": b'{"a": [' + b",".join([b"{}"] * 300_000) + b"]}",
    "texts with marks between": b'{"a": [' + b",".join([b'"\\",["'] * 600_000) + b"]}",
}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY)
def test_more_values_than_the_parser_may_make_are_refused_before_it_begins(body, monkeypatch):
    def parse(*_):
        raise AssertionError("the parser was called")

    monkeypatch.setattr("ropewalk.serve.api.requests.body.read_json", parse)
    with pytest.raises(RopewalkError, match="more than 300,000 values; send text instead of token ids"):
        parsed(body)


@pytest.mark.parametrize(
    "text", ["a, b: [c] {d}\n" * 200_000, ',"' * 600_000, "\\" * 600_000 + ',"[' * 600_000, '","' * 600_000]
)
def test_marks_in_a_text_are_no_values(text):
    assert parsed(json.dumps({"prompt": text}).encode()) == {"prompt": text}


@given(st.lists(st.sampled_from(['"', "\\", ",", "[", "x", "\n", ":"]), max_size=30), st.integers(0, 9))
def test_values_are_counted_as_the_parser_makes_them(parts, most):
    """At most as many as there are, so nothing is refused that has few, and at least all but the last of each list."""
    body = json.dumps({"".join(parts): ["".join(parts)] * most}).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ropewalk.serve.api.requests.body.MOST_VALUES", 2 * most + 5)
        assert parsed(body)
        if most > 2:
            patch.setattr("ropewalk.serve.api.requests.body.MOST_VALUES", most)
            with pytest.raises(RopewalkError, match="more than"):
                parsed(body)


def test_many_keys_take_no_time():
    body = json.dumps({f"k{n}": n for n in range(90_000)})[:-1] + ', "k89999": 0}'
    begun = time.process_time()
    with pytest.raises(RopewalkError, match="k89999"):
        parsed(body.encode())
    assert time.process_time() - begun < 5  # not the square of their number: that takes an hour


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.nightly
@given(st.dictionaries(st.text(), values))
def test_every_object_is_read_as_it_was_written(value):
    assert parsed(json.dumps(value).encode()) == value


@given(st.binary(max_size=60))
def test_whatever_comes_is_an_object_or_refused(body):
    with contextlib.suppress(RopewalkError):
        assert isinstance(parsed(body), dict)
