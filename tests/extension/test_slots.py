"""The places of the equation."""

import pytest

from ropewalk.errors import UnknownName
from ropewalk.extension.slots import PER_LAYER, SLOTS, method
from ropewalk.methods.frequencies import ByParts


def test_methods_are_found_by_slot_and_name():
    assert method("frequencies", "by_parts") is ByParts
    with pytest.raises(UnknownName, match=r"did you mean 'rerope_by_parts'\? It has: causal, window"):
        method("reach", "by_parts")


def test_what_layers_may_differ_in():
    assert PER_LAYER == ("frequencies", "reach", "biases", "scales")
    assert [name for name, slot in SLOTS.items() if slot.several] == ["biases", "scales", "surgery"]
