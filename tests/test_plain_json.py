"""Numbers that JSON does not have become null."""

import json
import math

import pytest

from ropewalk.plain_json import finite, record_json


@pytest.mark.parametrize(("value", "written"), [(1.5, 1.5), (math.nan, None), (math.inf, None), (-math.inf, None)])
def test_a_number(value, written):
    assert finite(value) == written


def test_a_record():
    record = {"a": (1, math.nan), "b": {"c": [math.inf, "x", None, True]}}
    assert json.loads(json.dumps(record_json(record), allow_nan=False)) == {
        "a": [1, None],
        "b": {"c": [None, "x", None, True]},
    }
