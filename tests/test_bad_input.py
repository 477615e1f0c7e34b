"""Every refusal: its class, and a message that says which field, which rule, what came, and what to do."""

import re

import pytest
import torch

from ropewalk import Conflict, DoesNotFit, Extension, Facts, InvalidValue, UnknownName, Unreadable, parse
from ropewalk.methods.biases import T5, ALiBi
from ropewalk.methods.frequencies import ABF, NTK, ByParts, Dynamic, Llama3, LongRoPE, NTKMixed, Partial, RoPE, XPos
from ropewalk.methods.positions import PoSE, Randomized
from ropewalk.methods.reach import Blockwise, Causal, DualChunk, LeakyReRoPE, ReRoPE, SelfExtend, Sinks, String, Window
from ropewalk.methods.scales import DynamicTemperature, HeadScale, LogN, Temperature, YarnTemperature
from ropewalk.methods.surgery import MHAToGQA, StretchPositions

from examples import FACTS

NAN = float("nan")
SHORT = Facts(trained_len=16, head_dim=8, layers=4, heads=4)

AT_CONSTRUCTION = [
    (lambda: ByParts(factor=0.5), InvalidValue, "factor must be at least 1, got 0.5"),
    (lambda: ByParts(factor=NAN), InvalidValue, "factor must be a number, got nan"),
    (lambda: ByParts(factor=float("inf")), InvalidValue, "factor must be a number, got inf"),
    (lambda: ByParts(factor="4"), InvalidValue, "factor must be a number, got '4'"),
    (lambda: ByParts(factor=True), InvalidValue, "factor must be a number, got True"),
    (lambda: ByParts(factor=4, low_turns=32), InvalidValue, "low_turns must be below high_turns (32), got 32"),
    (lambda: ByParts(factor=4, low_turns=0), InvalidValue, "low_turns must be above 0, got 0"),
    (lambda: ByParts(factor=4, ramp="dims"), InvalidValue, "ramp must be 'index' or 'turns', got 'dims'"),
    (lambda: ByParts(factor=4, truncate=1), InvalidValue, "truncate must be true or false, got 1"),
    (lambda: Llama3(low_turns=8), InvalidValue, "low_turns must be at most high_turns (4), got 8"),
    (lambda: NTK(factor=0), InvalidValue, "factor must be at least 1, got 0"),
    (lambda: NTKMixed(factor=4, power=-1), InvalidValue, "power must be at least 0, got -1"),
    (lambda: ABF(new_base=10**400), InvalidValue, "new_base must be a number, got 1000"),
    (lambda: Window(window=2**63), InvalidValue, "window must be a whole number, got 9223372036854775808"),
    (lambda: Extension(layers=(1, 2)), InvalidValue, "layers must be a mapping from layers to extensions, got (1, 2)"),
    (lambda: Extension(layers=((1, Extension()), (1, parse("log_n")))), Conflict, "layers repeats one of [1, 1]"),
    (lambda: parse(5), Unreadable, "extension must be text, got 5"),
    (lambda: parse("rope", trained_len=-5), InvalidValue, "trained_len must be a whole number, at least 1, got -5"),
    (lambda: ABF(new_base=1), InvalidValue, "new_base must be above 1, got 1"),
    (lambda: LongRoPE(long=()), InvalidValue, "long must be one divisor per pair, got ()"),
    (lambda: LongRoPE(long=(1, -2)), InvalidValue, "long must be above 0, got (1, -2)"),
    (lambda: LongRoPE(long=(1, NAN)), InvalidValue, "long must be a list, each item a number, got (1, nan)"),
    (lambda: LongRoPE(long=(1, 2), short=(1,)), InvalidValue, "short must be as many divisors as long (2), got 1"),
    (lambda: XPos(scale_base=0), InvalidValue, "scale_base must be above 0, got 0"),
    (lambda: Partial(share=1.5), InvalidValue, "share must be above 0 and at most 1, got 1.5"),
    (lambda: Dynamic(inner=RoPE()), InvalidValue, "inner must be a schedule with a factor, got 'rope'; take ntk"),
    (lambda: Dynamic(inner=Causal()), InvalidValue, "inner must be a schedule of frequencies, got Causal()"),
    (
        lambda: Dynamic(inner=NTK(factor=4)),
        InvalidValue,
        "inner must be written with factor=1: every row sets its factor",
    ),
    (lambda: Dynamic(inner=NTK(factor=1), steps=0), InvalidValue, "steps must be at least 1, got 0"),
    (lambda: Window(window=0), InvalidValue, "window must be at least 1, got 0"),
    (lambda: Window(window=-4), InvalidValue, "window must be at least 1, got -4"),
    (lambda: Window(window=4.0), InvalidValue, "window must be a whole number, got 4.0"),
    (lambda: Blockwise(block=7), InvalidValue, "block must be a positive even number, got 7"),
    (lambda: Sinks(window=4, n_sink=0), InvalidValue, "n_sink must be at least 1, got 0"),
    (lambda: LeakyReRoPE(window=4, leak=0.5), InvalidValue, "leak must be at least 1, got 0.5"),
    (lambda: SelfExtend(window=4, group=0), InvalidValue, "group must be at least 1, got 0"),
    (lambda: DualChunk(chunk=8, local=8), InvalidValue, "local must be below chunk (8), got 8"),
    (lambda: String(shift=8, local=8), InvalidValue, "local must be below shift (8), got 8"),
    (lambda: T5(buckets=31), InvalidValue, "buckets must be a positive even number, got 31"),
    (lambda: T5(max_distance=16), InvalidValue, "max_distance must be above half the buckets (16), got 16"),
    (lambda: Temperature(value=0), InvalidValue, "value must be above 0, got 0"),
    (lambda: DynamicTemperature(inner=LogN()), InvalidValue, "inner must be a scale with a factor, got 'log_n'; take"),
    (lambda: HeadScale(start=-1), InvalidValue, "start must be above 0, got -1"),
    (lambda: Randomized(limit=0), InvalidValue, "limit must be from 1 to 16,777,216, got 0"),
    (lambda: PoSE(target_len=-1), InvalidValue, "target_len must be at least 1, got -1"),
    (lambda: MHAToGQA(kv_heads=0), InvalidValue, "kv_heads must be at least 1, got 0"),
    (lambda: StretchPositions(target_len=0), InvalidValue, "target_len must be at least 1, got 0"),
    (lambda: Facts(trained_len=0, head_dim=8), InvalidValue, "trained_len must be at least 1, got 0"),
    (lambda: Facts(trained_len=8, head_dim=7), InvalidValue, "head_dim must be a positive even number, got 7"),
    (lambda: Facts(trained_len=8, head_dim=8, rotary_dim=10), InvalidValue, "rotary_dim must be at most head_dim (8)"),
    (lambda: Facts(trained_len=8, head_dim=8, heads=0), InvalidValue, "heads must be at least 1, got 0"),
    (
        lambda: Facts(trained_len=8, head_dim=8, heads=6, kv_heads=4),
        InvalidValue,
        "kv_heads must be a divisor of heads",
    ),
    (lambda: Extension(frequencies=Causal()), InvalidValue, "frequencies must be a Frequencies, got Causal()"),
    (lambda: Extension(biases=ALiBi()), InvalidValue, "biases must be a tuple of Bias, got ALiBi()"),
    (lambda: Extension(scales=(LogN(), LogN())), Conflict, "scales must be different methods, got ['log_n', 'log_n']"),
    (
        lambda: Extension(layers={"last": Extension()}),
        InvalidValue,
        "layers must be keyed by whole numbers, got 'last'",
    ),
    (lambda: Extension(layers=3), InvalidValue, "layers must be a mapping from layers to extensions, got 3"),
    (lambda: Extension(layers={0: LogN()}), InvalidValue, "layers[0] must be an Extension, got LogN"),
    (
        lambda: Extension(layers={0: Extension(layers={1: Extension()})}),
        InvalidValue,
        "layers[0] must be made of frequencies, reach, biases, scales, got 'layers'",
    ),
    (
        lambda: Extension(layers={0: parse("nbce")}),
        InvalidValue,
        "layers[0] must be made of frequencies, reach, biases, scales, got 'decoding'",
    ),
    (lambda: parse("rope") + parse("nope"), Conflict, "rope and none are both schedules; keep one"),
    (
        lambda: Extension(layers={0: parse("log_n")}) + Extension(layers={0: parse("rope")}),
        Conflict,
        "both have layers [0]; keep one extension per layer",
    ),
]

IN_TEXT = [
    ("yarm:factor=4", UnknownName, "there is no preset or method 'yarm'; did you mean 'yarn'?"),
    ("dynamic", UnknownName, "dynamic is the name of several methods; known: frequencies.dynamic, scales.dynamic"),
    ("colours.red", UnknownName, "the equation has no slot 'colours'. It has: frequencies, reach"),
    ("reach.alibi", UnknownName, "reach has no method 'alibi'. It has: causal, window"),
    (
        "yarn:faktor=4",
        UnknownName,
        "yarn has no parameter 'faktor'; did you mean 'factor'? It has: factor, trained_len",
    ),
    ("reach.window:size=4", UnknownName, "window has no parameter 'size'. It has: window"),
    ("alibi:heads=4", UnknownName, "alibi has no parameter 'heads'. It has none"),
    (
        "sandwich:first=0",
        UnknownName,
        "sandwich has no parameter 'first'. It has none; the method alone is biases.sandwich:...",
    ),
    ("yarn:trained_len=0,target_len=8", InvalidValue, "trained_len must be a whole number, at least 1, got 0"),
    ("yarn:factor=4,trained_len=abc", InvalidValue, "trained_len must be a whole number, at least 1, got 'abc'"),
    ("hwfa:layers=3.5,window=4", InvalidValue, "layers must be a whole number, at least 1, got 3.5"),
    ("yarn:factor=" + "9" * 400, Unreadable, "length must be a whole number"),
    ("a:x=" + "(a:x=" * 30 + ")" * 30, Unreadable, "extension must be nested at most 8 deep"),
    ("yarn", InvalidValue, "yarn needs factor; write yarn:factor=..., or give trained_len and target_len"),
    ("reach.window", InvalidValue, "window needs window; write window:window=..."),
    ("rerope", InvalidValue, "rerope needs window; write rerope:window=..., or give trained_len"),
    ("hwfa", InvalidValue, "hwfa needs layers; write hwfa:layers=..."),
    ("hwfa:layers=1,trained_len=512", InvalidValue, "layers must be at least 2, one with windows and the last, got 1"),
    ("hwfa:layers=400,trained_len=512", InvalidValue, "layers must be fewer, for a window of 2 in 512 trained tokens"),
    ("hwfa_rerope:layers=2,trained_len=512", InvalidValue, "layers must be at least 3, two of which are full, got 2"),
    ("randomized", InvalidValue, "randomized needs limit; give target_len"),
    ("yarn:trained_len=4096,target_len=2048", InvalidValue, "target_len must be at least trained_len (4096), got 2048"),
    ("yarn:factor=0.9", InvalidValue, "factor must be at least 1, got 0.9"),
    ("yarn:factor=four", InvalidValue, "factor must be a number, got 'four'"),
    ("rerope:window=0", InvalidValue, "window must be at least 1, got 0"),
    ("streaming:window=0", InvalidValue, "window must be at least 1, got 0"),
    ("longrope:factor=4,short=[1,2]", InvalidValue, "short needs long; give both, or long alone"),
    ("self_extend:window=900,trained_len=1024,target_len=8192", InvalidValue, "window must be below 682.667"),
    ("yarn:factor", Unreadable, "parameter of yarn must be written key=value, got 'factor'"),
    ("yarn:factor=4,factor=8", Unreadable, "yarn has factor twice in 'yarn:factor=4,factor=8'"),
    ("", Unreadable, "the extension '' is empty; write name:key=value,...+name..."),
    ("yarn:factor=4+", Unreadable, "a part of the extension 'yarn:factor=4+' is empty; write name:key=value"),
    ("yarn(factor=4)", Unreadable, "extension must be written name:key=value,...+name..., got 'yarn(factor=4)'"),
    ("longrope:factor=4,long=[1,2", Unreadable, "extension must be written with matching brackets"),
    ("yarn:factor=4)", Unreadable, "extension must be written with matching brackets"),
]

IN_JSON = [
    ("{", Unreadable, "extension must be JSON, got '{'; Expecting property name"),
    ("[]", Unreadable, "extension must be a JSON object of slots, got []"),
    (
        '{"frequency": {"name": "rope"}}',
        UnknownName,
        "the equation has no slot 'frequency'; did you mean 'frequencies'?",
    ),
    ('{"frequencies": {"factor": 4}}', Unreadable, "frequencies must be a JSON object with a name"),
    ('{"frequencies": {"name": "rope", "base": 1}}', UnknownName, "rope has no parameter 'base'. It has none"),
    ('{"frequencies": {"name": "yarn"}}', UnknownName, "frequencies has no method 'yarn'. It has: rope"),
    ('{"frequencies": {"name": "ntk"}}', InvalidValue, "ntk needs factor; write ntk:factor=..."),
    ('{"frequencies": null}', Unreadable, "frequencies must be a JSON object with a name, got None"),
    ('{"biases": {"name": "alibi"}}', Unreadable, "biases must be a JSON list, got {'name': 'alibi'}"),
    ('{"layers": {"last": {}}}', Unreadable, "layers must be keyed by whole numbers, got 'last'"),
    ('{"layers": [1]}', Unreadable, "layers must be a JSON object, got [1]"),
    ('{"frequencies": {"name": ["rope"]}}', UnknownName, "frequencies has no method ['rope']; did you mean 'rope'?"),
]

FOR_A_MODEL = [
    (
        Extension(reach=ReRoPE(window=16)),
        "window must be at most 15 for a model trained on 16 tokens, which knows no larger distance",
    ),
    (Extension(reach=LeakyReRoPE(window=20)), "window must be at most 15 for a model trained on 16 tokens"),
    (Extension(reach=SelfExtend(window=16, group=2)), "window must be at most 15 for a model trained on 16 tokens"),
    (Extension(reach=DualChunk(chunk=16, local=2)), "chunk must be at most 15 for a model trained on 16 tokens"),
    (Extension(reach=String(shift=17, local=2)), "shift must be at most 16 for a model trained on 16 tokens"),
    (Extension(reach=Sinks(window=16)), "n_sink + window must be at most 16 for a model trained on 16 tokens"),
    (parse("lm_infinite:window=17"), "window must be at most 16 for a model trained on 16 tokens"),
    (parse("reach.lambda_mask:window=9,ceiling=17"), "ceiling must be at most 16 for a model trained on 16 tokens"),
    (Extension(frequencies=LongRoPE(long=(1.0, 2.0))), "long must be one divisor for each of the 4 pairs, got 2"),
    (parse("longrope:factor=2,long=[1,2]"), "long must be one divisor for each of the 4 pairs, got 2"),
    (Extension(frequencies=Partial(share=0.1)), "share must be at least one pair of a head of 8, got 0.1"),
    (Extension(frequencies=Partial(share=0.3, inner=NTK(factor=2))), "rotary_dim must be above 2 for ntk, which"),
    (Extension(layers={4: parse("nope")}), "layer must be one of the model's 4, from -4 to 3, got 4"),
    (Extension(layers={-5: parse("nope")}), "layer must be one of the model's 4, from -4 to 3, got -5"),
    (Extension(layers={-1: parse("nope"), 3: parse("log_n")}), "layers must be different layers of a model with 4"),
    (Extension(layers={1: parse("rerope:window=16")}), "window must be at most 15 for a model trained on 16 tokens"),
    (Extension(surgery=(MHAToGQA(kv_heads=3),)), "kv_heads must be a divisor of the model's 4 key heads, got 3"),
]


def raises(kind, text):
    return pytest.raises(kind, match=re.escape(text))


@pytest.mark.parametrize(("make", "kind", "text"), AT_CONSTRUCTION, ids=[text for *_, text in AT_CONSTRUCTION])
def test_at_construction(make, kind, text):
    with raises(kind, text):
        make()


@pytest.mark.parametrize(("line", "kind", "text"), IN_TEXT, ids=[line for line, *_ in IN_TEXT])
def test_in_text(line, kind, text):
    with raises(kind, text):
        parse(line)


@pytest.mark.parametrize(("line", "kind", "text"), IN_JSON, ids=[line for line, *_ in IN_JSON])
def test_in_json(line, kind, text):
    with raises(kind, text):
        Extension.from_json(line)


@pytest.mark.parametrize(("extension", "text"), FOR_A_MODEL, ids=str)
def test_for_a_model(extension, text):
    with raises(DoesNotFit, text):
        extension.check_against(SHORT)


def test_a_window_grows_with_the_frequencies():
    """A schedule that makes four trained lengths familiar makes four times the window familiar."""
    wide = ReRoPE(window=60)
    with raises(DoesNotFit, "at most 15"):
        Extension(reach=wide).check_against(SHORT)
    Extension(reach=wide, frequencies=ByParts(factor=4)).check_against(SHORT)
    Extension(reach=wide, frequencies=Dynamic(inner=NTK(factor=1))).check_against(SHORT)
    with raises(DoesNotFit, "at most 63"):
        Extension(reach=ReRoPE(window=64), frequencies=ByParts(factor=4)).check_against(SHORT)


def test_one_trained_token_leaves_no_logarithm():
    with raises(DoesNotFit, "trained_len must be at least 2 for log_n"):
        Extension(scales=(LogN(),)).check_against(Facts(trained_len=1, head_dim=8))
    with raises(DoesNotFit, "trained_len must be at least 2 for longrope_temperature"):
        parse("scales.longrope_temperature:factor=2").check_against(Facts(trained_len=1, head_dim=8))


def test_a_layer_that_does_not_exist_is_refused_when_asked_for():
    mixed = Extension(layers={0: parse("nope")})
    with raises(DoesNotFit, "layer must be one of the model's 4, from -4 to 3, got 4"):
        mixed.at_layer(4, SHORT)


def test_refusals_are_value_errors_that_name_their_field():
    with pytest.raises(ValueError, match="factor") as caught:
        YarnTemperature(factor=0)
    assert caught.value.field == "factor"


def test_a_table_of_the_wrong_length_is_refused_when_computed():
    with raises(DoesNotFit, "long must be one divisor for each of the 8 pairs"):
        LongRoPE(long=(1.0,)).table(FACTS, torch.tensor(3).item())


def test_what_is_known_and_what_is_said_must_agree():
    with raises(Conflict, "yarn:trained_len is 2048, but the model or the call says 4096; leave trained_len out"):
        parse("yarn:trained_len=2048", trained_len=4096, target_len=8192)


def test_a_layer_is_checked_even_where_none_differs():
    with raises(DoesNotFit, "layer must be one of the model's 4, from -4 to 3, got 99"):
        Extension().at_layer(99, SHORT)
    with raises(DoesNotFit, "layer must be one of the model's 4, from -4 to 3, got 1.5"):
        Extension().at_layer(1.5, SHORT)


def test_weights_of_layers_are_asked_for_layer_by_layer():
    with raises(InvalidValue, "weights belong to one layer; use extension.at_layer(...)"):
        parse("hwfa:layers=4,window=4").weights(SHORT)
