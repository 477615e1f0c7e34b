"""Reading files and JSON: every refusal names the file, and nothing is taken for what it is not."""

import json
import math

import pytest
from hypothesis import given, settings, strategies as st

from ropewalk.errors import Unreadable
from ropewalk.files import finite, holds, read_json, read_record, read_text, record_json, text_in_pieces

NAMES = ["null\0byte", "half a pair \ud800", "x" * 300, "missing", "."]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_of_no_file(tmp_path, name):
    place = tmp_path / name
    assert not holds(place.is_file)
    with pytest.raises(Unreadable, match="text must be a file, got "):
        read_text(place, "text", "a file")


def test_what_is_not_utf_8(tmp_path):
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(Unreadable, match="codec can't decode"):
        read_text(tmp_path / "file", "text", "a file")


@settings(deadline=None)
@given(content=st.binary(max_size=60), size=st.integers(1, 70))
def test_a_text_in_pieces_is_the_text(content, size, tmp_path_factory):
    """Whatever the bytes, and wherever a piece ends: within a character, or between \\r and \\n."""
    path = tmp_path_factory.mktemp("pieces") / "file"
    path.write_bytes(content)
    pieces = list(text_in_pieces(path, "text", "a file", size))
    assert "".join(pieces) == path.read_text("utf-8", errors="replace")
    assert all(len(piece) == size for piece in pieces[:-1])
    assert len(pieces) == 1 or pieces[-1]


def test_a_folder_has_no_text(tmp_path):
    with pytest.raises(Unreadable, match="text must be a file, got "):
        list(text_in_pieces(tmp_path, "text", "a file", 9))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("{} {}", "Extra data"),
        (b"\xff\xfe", "codec can't decode|Expecting value"),
        ("[" * 100_000, "recursion"),
        ("9" * 5000, "limit"),
        ("NaN", "'NaN'; numbers must be finite"),
        ('{"a": -Infinity}', "'-Infinity'; numbers must be finite"),
        ("1e999", "'1e999'; numbers must be finite"),
        ('{"a": 1, "b": 2, "b": 2}', "'b'; this key is there twice"),
        ('[{"a": {"c": 1, "c": 1}}]', "'c'; this key is there twice"),
    ],
    ids=range(11),
)
def test_json_that_is_none(text, why):
    with pytest.raises(Unreadable, match=f"field must be JSON, .*({why})"):
        read_json(text, "field")


def test_json_that_is():
    value = {"a": [1, -2.5, 1e300, "\u00e9", None, True], "b": {"a": {}}}
    assert read_json(json.dumps(value), "field") == value


@pytest.mark.parametrize("text", ["[]", "null", "5", '"{}"'])
def test_a_record_is_an_object(tmp_path, text):
    (tmp_path / "file").write_text(text)
    with pytest.raises(Unreadable, match="file must be a record, a JSON object, got"):
        read_record(tmp_path / "file", "a record")


@pytest.mark.parametrize(("value", "written"), [(1.5, 1.5), (math.nan, None), (math.inf, None), (-math.inf, None)])
def test_a_number_that_json_does_not_have_becomes_null(value, written):
    assert finite(value) == written


def test_so_does_one_within_a_record():
    record = {"a": (1, math.nan), "b": {"c": [math.inf, "x", None, True]}}
    assert json.loads(json.dumps(record_json(record), allow_nan=False)) == {
        "a": [1, None],
        "b": {"c": [None, "x", None, True]},
    }
