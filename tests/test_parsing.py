"""From a line to an extension."""

import json

import pytest

from ropewalk import Extension, parse
from ropewalk.biases import ALiBi
from ropewalk.errors import Unreadable
from ropewalk.frequencies import NTK, Dynamic, NoPE, NTKOld
from ropewalk.reach import Causal, ReRoPE
from ropewalk.scales import DynamicTemperature, YarnTemperature


def test_a_preset_comes_before_a_method_of_its_name():
    assert parse("alibi") == Extension(frequencies=NoPE(), biases=(ALiBi(),))
    assert parse("biases.alibi") == Extension(biases=(ALiBi(),))


def test_a_method_without_a_preset_needs_no_slot():
    assert parse("ntk_old:factor=2") == Extension(frequencies=NTKOld(factor=2))
    assert parse("causal") == Extension(reach=Causal())


def test_nested_methods_are_of_the_same_slot():
    assert parse("frequencies.dynamic:inner=(ntk:factor=1),steps=nothing").frequencies == Dynamic(
        inner=NTK(factor=1), steps=None
    )
    assert parse("scales.dynamic:inner=(yarn_temperature:factor=1)").scales == (
        DynamicTemperature(inner=YarnTemperature(factor=1)),
    )


def test_what_is_known_serves_whoever_takes_it_and_the_line_wins():
    known = {"trained_len": 4096, "target_len": 16384, "layers": 24}
    assert parse("rerope+log_n", **known).reach == ReRoPE(window=1024)
    assert parse("rerope:window=99", **known).reach == ReRoPE(window=99)
    assert parse("yarn", **known) == parse("yarn:factor=4")
    assert parse("yarn:factor=2", **known) == parse("yarn:factor=2")
    assert parse("log_n", **known) == parse("log_n")


def test_a_file_of_an_extension(tmp_path):
    wanted = parse("rerope:window=64+log_n", trained_len=128)
    (tmp_path / "extension.json").write_text(json.dumps(wanted.to_json()))
    assert parse(str(tmp_path / "extension.json")) == wanted
    with pytest.raises(Unreadable, match=r"extension must be a line, or a file of an extension, got '.*none.json'"):
        parse(str(tmp_path / "none.json"))
