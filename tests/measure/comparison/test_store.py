"""The store against those who change it: what it gives is what was put in, or it is refused by name."""

import sqlite3
from random import Random

import pytest
from full_disk import room

from ropewalk.errors import DoesNotFit, RopewalkError, Unreadable
from ropewalk.measure.comparison.store import Store

RESULT = {"result": {"loss": 1.5, "curve": [1.0, float("nan")]}, "seconds": 0.25}


@pytest.fixture
def path(tmp_path):
    store = Store(tmp_path / "cells.sqlite")
    for key in ("one", "two"):
        store.put(key, RESULT)
    return store.path


def change(path, *words):
    file = sqlite3.connect(path)
    with file:
        file.execute(*words)
    file.close()


def test_what_was_put_in_is_given(path):
    assert repr(Store(path).get("one")) == repr(RESULT)


@pytest.mark.parametrize(
    "value",
    ["{", "null", "[]", "{}", b"\xff\xfe", 5, "NaN", "[" * 100_000, '{"result": {"loss": 1.0}, "seconds": 0.25}'],
)
def test_a_result_that_was_changed_is_refused(path, value):
    change(path, "update cells set result = ? where key = 'one'", (value,))
    with pytest.raises(Unreadable, match=r"a result in .*cells\.sqlite was changed after it was measured; use"):
        Store(path).get("one")
    assert Store(path).get("two")


def test_a_result_under_another_key_is_refused(path):
    change(path, "delete from cells where key = 'two'")
    change(path, "update cells set key = 'two' where key = 'one'")
    with pytest.raises(Unreadable, match="was changed after it was measured"):
        Store(path).get("two")


@pytest.mark.parametrize("words", ["drop table failures", "alter table cells rename to other", "drop table cells"])
def test_tables_that_are_gone_are_those_of_a_new_store(path, words):
    change(path, words)
    assert Store(path).get("three") is None
    assert Store(path).failure("one") is None


def test_a_table_of_other_columns(path):
    change(path, "alter table cells rename column result to outcome")
    with pytest.raises(Unreadable, match="store must be a file of results"):
        Store(path).get("one")


def test_any_byte_may_be_another(path):
    good, random = path.read_bytes(), Random(0)
    for _ in range(200):
        place = random.randrange(len(good))
        path.write_bytes(good[:place] + bytes([random.randrange(256)]) + good[place + 1 :])
        try:
            store = Store(path)
            found = [store.get(key) for key in sorted(store.keys() & {"one", "two"})]
        except RopewalkError:
            continue
        assert all(repr(each) == repr(RESULT) for each in found)


NAMES = ["null\0byte", "half a pair \ud800", "x" * 300, "/".join(["y" * 200] * 40), ".", "file/below"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_of_no_file(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(Unreadable, match="store must be a file of results"):
        Store(tmp_path / name).put("key", RESULT)


def test_a_full_disk_costs_the_result_that_is_written_and_no_other(path):
    with room(path.stat().st_size), pytest.raises(DoesNotFit, match=r"disk must be large enough.*measured is kept"):
        Store(path).put("large", {"text": "x" * 100_000})
    store = Store(path)
    assert store.keys() == {"one", "two"}
    store.put("large", {"text": "x" * 100_000})
    assert store.keys() == {"one", "two", "large"}
