"""From a line to an extension."""

import json
from contextlib import suppress
from dataclasses import MISSING

import pytest
from hypothesis import given, settings, strategies as st

from ropewalk import Extension, Facts, parse
from ropewalk.errors import InvalidValue, RopewalkError, Unreadable
from ropewalk.extension.parsing import PRESETS, notation_of, parse_for
from ropewalk.methods.biases import ALiBi
from ropewalk.methods.frequencies import NTK, Dynamic, NoPE, NTKOld
from ropewalk.methods.reach import Causal, ReRoPE
from ropewalk.methods.record import arguments
from ropewalk.methods.scales import DynamicTemperature, YarnTemperature


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
    assert parse("ntk_old+scales.yarn_temperature", **known) == parse(
        "ntk_old:factor=4+scales.yarn_temperature:factor=4"
    )
    assert parse("ntk_old:factor=2", **known) == parse("ntk_old:factor=2")


def test_every_preset_has_a_line_that_means_it_where_layers_agree():
    for name in PRESETS:
        with suppress(RopewalkError):  # some need a model
            extension = parse(name, trained_len=4096, target_len=16384, layers=8, key_heads=8)
            line = notation_of(extension)
            assert parse(line) == extension if line else extension.layers or extension.heads, name


def test_the_key_heads_that_gqa_leaves_are_not_those_of_the_model():
    (eight,), (two,) = parse("gqa", key_heads=32).surgery, parse("gqa:kv_heads=2", key_heads=32).surgery
    assert (eight.kv_heads, two.kv_heads) == (8, 2)


def test_a_file_of_an_extension(tmp_path):
    wanted = parse("rerope:window=64+log_n", trained_len=128)
    (tmp_path / "extension.json").write_text(json.dumps(wanted.to_json()))
    assert parse(str(tmp_path / "extension.json")) == wanted
    with pytest.raises(Unreadable, match=r"extension must be a line, or a file of an extension, got '.*none.json'"):
        parse(str(tmp_path / "none.json"))


NUMBERS = [
    *(str(sign * 2**power + more) for power in (0, 1, 3, 7, 12, 20, 40, 61, 62) for sign in (-1, 1) for more in (0, 1)),
    *("0", "0.5", "1e-300", "1e300"),
]
OTHERS = ["x", "nothing", "true", "inf", "-inf", "nan", "(ntk:factor=1)", "[]", "[1,x]", "[2,8]"]
LENGTHS = st.one_of(st.integers(1, 64), st.integers(1, 2**20), st.integers(1, 2**62 - 1), st.sampled_from([2**62 - 1]))


@st.composite
def preset_lines(draw, name):
    """A line of a preset with any values of its parameters, most of them wrong."""
    keys = (
        draw(st.lists(st.sampled_from(sorted(arguments(PRESETS[name]))), unique=True))
        if arguments(PRESETS[name])
        else []
    )
    values = [f"{key}={draw(st.sampled_from(NUMBERS + OTHERS))}" for key in keys]
    return f"{name}:{','.join(values)}" if values else name


@st.composite
def models(draw):
    """Facts of any model, most of them unlikely."""
    head_dim, trained_len = 2 * draw(st.integers(1, 80)), draw(LENGTHS)
    return Facts(
        trained_len=trained_len,
        head_dim=head_dim,
        base=draw(st.sampled_from([1.5, 10_000.0, 1e18])),
        rotary_dim=draw(st.none() | st.integers(1, head_dim // 2).map(lambda pairs: 2 * pairs)),
        original_len=draw(st.none() | st.integers(1, trained_len)),
        layers=draw(st.one_of(st.integers(1, 48), st.just(2**40))),
        heads=draw(st.integers(1, 33)),
    )


@pytest.mark.sampled(cases=8)
@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_values_on_any_model_give_an_extension_or_a_refusal(name, data):
    line, facts, target_len = data.draw(preset_lines(name)), data.draw(models()), data.draw(st.none() | LENGTHS)
    with suppress(RopewalkError):
        extension = parse_for(line, facts, target_len)
        extension.check_against(facts)
        assert Extension.from_json(extension.to_json()) == extension


WRONG = [
    (name, argument)
    for name, preset in PRESETS.items()
    for argument in arguments(preset).values()
    if argument.name not in ("trained_len", "target_len", "layers", "key_heads")
]


@pytest.mark.parametrize(("name", "argument"), WRONG, ids=lambda part: getattr(part, "name", part))
def test_a_value_of_another_type_is_refused_with_the_parameter_and_its_type(name, argument):
    with pytest.raises(InvalidValue, match=rf"^{argument.name} must be {argument.kind}, got 'x'$"):
        parse(f"{name}:{argument.name}=x", trained_len=4096, target_len=8192, layers=24, key_heads=4)
    with pytest.raises(InvalidValue, match=rf"^{argument.name} must be {argument.kind}, got -inf$"):
        PRESETS[name](
            **{
                argument.name: float("-inf"),
                **{one: 4 for one in ("layers", "key_heads") if one in arguments(PRESETS[name])},
            }
        )


@pytest.mark.parametrize("name", ["swan", "hwfa", "hwfa_rerope", "rnope_swa", "irope"])
def test_what_must_be_stated_is_not_nothing(name):
    assert arguments(PRESETS[name])["layers"].default is MISSING
    with pytest.raises(InvalidValue, match=r"^layers must be a whole number, got None$"):
        parse(f"{name}:layers=nothing", trained_len=4096)
