"""Reading JSON: the refusals of values are in test_bad_input."""

import pytest

from ropewalk.errors import Unreadable
from ropewalk.frequencies import NTK, Dynamic
from ropewalk.scales import LogN
from ropewalk.stored import content, layers, load


def test_content():
    assert content("frequencies", {"name": "dynamic", "inner": {"name": "ntk", "factor": 1}}) == Dynamic(
        inner=NTK(factor=1)
    )
    assert content("scales", [{"name": "log_n"}]) == [LogN()]


def test_layers_keep_their_json():
    assert layers({"-1": {"scales": []}, "3": {}}) == [(-1, {"scales": []}), (3, {})]


@pytest.mark.parametrize(
    "text", ['{"reach": 1, "reach": 2}', '{"layers": {"1": {}, "1": {}}}', "[" * 100_000, '{"reach": {"a": 1, "a": 1}}']
)
def test_text_that_says_things_twice_or_never_ends_is_refused(text):
    with pytest.raises(Unreadable):
        load(text)
