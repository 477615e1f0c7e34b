"""Reading JSON: the refusals of values are in test_bad_input."""

import json

import pytest

from ropewalk import Extension
from ropewalk.errors import InvalidValue, RopewalkError, Unreadable
from ropewalk.extension.slots import read_object, read_overrides, read_slot
from ropewalk.methods.frequencies import NTK, Dynamic
from ropewalk.methods.scales import LogN


def test_content():
    assert read_slot("frequencies", {"name": "dynamic", "inner": {"name": "ntk", "factor": 1}}) == Dynamic(
        inner=NTK(factor=1)
    )
    assert read_slot("scales", [{"name": "log_n"}]) == [LogN()]


def test_layers_keep_their_json():
    assert read_overrides("layers", {"-1": {"scales": []}, "3": {}}) == [(-1, {"scales": []}), (3, {})]


@pytest.mark.parametrize(
    "text", ['{"reach": 1, "reach": 2}', '{"layers": {"1": {}, "1": {}}}', "[" * 100_000, '{"reach": {"a": 1, "a": 1}}']
)
def test_text_that_says_things_twice_or_never_ends_is_refused(text):
    with pytest.raises(Unreadable):
        read_object(text)


def nested(depth):
    """A schedule in a schedule, so many deep."""
    value = {"name": "ntk", "factor": 1}
    for _ in range(depth):
        value = {"name": "dynamic", "inner": value}
    return value


def test_specs_are_nested_eight_deep_and_no_deeper():
    with pytest.raises(InvalidValue, match="inner must be a schedule with a factor"):  # each one was read
        Extension.from_json({"frequencies": nested(7)})
    with pytest.raises(Unreadable, match="nested at most 8 deep"):
        Extension.from_json({"frequencies": nested(8)})


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "5",
        '"{}"',
        "[]",
        "\0",
        "\ufeff{}",
        '{"\\ud800": 1}',
        f'{{"frequencies": {{"name": "ntk", "factor": {DIGITS}}}}}',
        '{"frequencies": {"name": "ntk", "factor": 1e999}}',
        '{"frequencies": {"name": "ntk", "factor": NaN}}',
        '{"frequencies": {"name": []}}',
        '{"frequencies": {"name": {}}}',
        '{"frequencies": {"name": "by_parts", "factor": 4, "ramp": []}}',
        '{"frequencies": {"name": "ntk", "factor": 4, "x\\ud800": 1}}',
        '{"frequencies": null}',
        '{"scales": {"name": "log_n"}}',
        '{"scales": [{"name": "log_n"}, {"name": "log_n"}]}',
        f'{{"layers": {{"{DIGITS}": {{}}}}}}',
        '{"layers": {"\u0663": {}}}',
        '{"layers": {"01": {}}}',
        '{"layers": {"1": "{}"}}',
        '{"layers": {"1": null}}',
        '{"layers": [[1, {}]]}',
        json.dumps({"layers": {"1": {"layers": {"1": {}}}}}),
        json.dumps({"frequencies": nested(500)}),
        {"frequencies": nested(100_000)},
        json.dumps({"frequencies": {"name": "longrope", "long": [1.5] * 1_000_000}}),
        " " * 5_000_000 + "{}",
        {5: 1},
        {"layers": {True: {}}},
        b"{}",
        None,
    ],
    ids=range(33),
)
def test_whatever_is_no_extension_is_refused(text):
    with pytest.raises(RopewalkError) as refused:
        Extension.from_json(text)
    assert len(str(refused.value)) < 5000  # however large what was given
