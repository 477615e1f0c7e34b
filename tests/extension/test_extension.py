"""Slots, their sum, layers, JSON and the description."""

import dataclasses
import json

import pytest
from hypothesis import given, strategies as st

from ropewalk import Conflict, Extension, parse
from ropewalk.extension.parsing import read_line
from ropewalk.methods.biases import ALiBi, Sandwich
from ropewalk.methods.frequencies import ByParts, CoPE, Dynamic, NoPE, Partial, Resonance, RoPE
from ropewalk.methods.reach import Causal, Window
from ropewalk.methods.scales import LogN, YarnTemperature

from examples import FACTS

LAST = Extension(frequencies=NoPE(), reach=Causal(), scales=(LogN(clipped=False),))
MIXED = Extension(reach=Window(window=4), layers={-1: LAST})


def test_empty_slots_keep_what_the_model_does():
    empty = Extension()
    assert (empty.frequencies_or_rope.name, empty.reach_or_causal.name, empty.positions_or_sequential.name) == (
        "rope",
        "causal",
        "sequential",
    )
    assert empty.specs == {}
    assert empty.to_json() == {}
    assert Extension.from_json({}) == empty


def test_sum():
    both = parse("yarn:factor=4") + parse("log_n") + parse("window:window=8")
    assert both == Extension(
        frequencies=ByParts(factor=4), scales=(YarnTemperature(factor=4), LogN()), reach=Window(window=8)
    )
    assert both + Extension() == both
    assert parse("rope") + parse("rope") == parse("rope")


def test_a_layer_keeps_what_its_own_extension_leaves_open():
    both = parse("hwfa:layers=4,window=4") + parse("yarn:factor=4") + parse("biases.alibi")
    below, last = both.at_layer(0, FACTS), both.at_layer(3, FACTS)
    assert (below.frequencies_or_rope, below.reach_or_causal, below.scales) == (
        ByParts(factor=4),
        Window(window=4),
        (YarnTemperature(factor=4),),
    )
    assert (last.frequencies_or_rope, last.reach_or_causal, last.scales) == (NoPE(), Causal(), (LogN(clipped=False),))
    assert below.biases == last.biases == (ALiBi(),)


def test_the_same_method_twice_is_once():
    assert parse("log_n") + parse("log_n") == parse("log_n")
    assert parse("ntk_mixed:factor=4+log_n") == parse("ntk_mixed:factor=4")
    with pytest.raises(Conflict, match="scales must be different methods"):
        parse("log_n") + parse("log_n:clipped=false")


def test_a_slot_for_several_takes_several():
    assert (Extension(biases=(ALiBi(),)) + Extension(biases=(Sandwich(),))).biases == (ALiBi(), Sandwich())


def test_layers_are_merged():
    both = Extension(layers={0: parse("nope")}) + Extension(layers={1: parse("log_n")})
    assert dict(both.layers) == {0: parse("nope"), 1: parse("log_n")}


def test_layers_given_as_a_mapping_hash_and_compare():
    assert hash(MIXED) == hash(Extension.from_json(MIXED.to_json()))
    assert Extension(layers={1: Extension(), 0: Extension()}) == Extension(layers={0: Extension(), 1: Extension()})


def test_json_text_round_trip():
    for extension in (
        MIXED,
        parse("dynamic_yarn+rerope:window=5+log_n+biases.alibi"),
        parse("gqa+nbce+pose:target_len=64,factor=2"),
    ):
        assert Extension.from_json(json.dumps(extension.to_json())) == extension


def test_json_names_every_parameter():
    assert parse("yarn:factor=4").to_json() == {
        "frequencies": {
            "name": "by_parts",
            "factor": 4.0,
            "low_turns": 1.0,
            "high_turns": 32.0,
            "ramp": "index",
            "mix": "frequency",
            "truncate": True,
        },
        "scales": [{"name": "yarn_temperature", "factor": 4.0, "coefficient": 0.1, "over": "rotating"}],
    }


def test_layers_are_found_from_either_end():
    assert MIXED.at_layer(3, FACTS).frequencies_or_rope == NoPE()
    assert MIXED.at_layer(-1, FACTS).frequencies_or_rope == NoPE()
    assert MIXED.at_layer(0, FACTS) == Extension(reach=Window(window=4))
    assert Extension().at_layer(None, FACTS) == Extension()


def test_the_numbering_is_that_of_the_whole_model():
    mixed = MIXED + parse("randomized:limit=99")
    assert mixed.at_layer(-1, FACTS).positions_or_sequential.name == "randomized"


def test_weights_are_named_by_method():
    weights = parse("kerple+scales.head_scale+log_n").weights(FACTS)
    assert {name: sorted(group) for name, group in weights.items()} == {
        "kerple_log": ["a", "p"],
        "head_scale": ["lambda"],
    }


def test_description_is_the_resulting_formula():
    text = (parse("yarn:factor=4+log_n+biases.alibi") + MIXED).describe()
    first = "logit(i,j) = log_n(i) * < yarn_temperature(i) * R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d)"
    assert text.splitlines()[0] == f"{first} + alibi_h(q_at(i) - k_at(j))"
    assert "frequencies.by_parts:factor=4\n" in text
    assert "reach.window:window=4\n" in text
    assert "    Source: Peng et al. 2023, arXiv:2309.00071" in text
    assert "    scale(i) = (coefficient ln(factor) + 1)^2\n" in text
    assert "in layer -1:\n    logit(i,j) = log_n(i) * <" in text


@pytest.mark.parametrize(
    ("line", "own", "together"),
    [
        ("rerope:window=8", "window:window=4+log_n", "rerope:window=8+log_n"),  # a reach in the place of the other
        ("scales.temperature:value=2", "log_n", "log_n+scales.temperature:value=2"),  # scales multiply,
        ("scales.log_n:clipped=false", "log_n", "scales.log_n:clipped=false"),  # but each is there once
        ("yarn:factor=4", "hwfa:window=4,layers=2", "hwfa:window=4,layers=2+yarn:factor=4"),
        ("alibi", "alibi", "alibi"),
    ],
)
def test_over(line, own, together):
    assert parse(line).over(parse(own)) == parse(together)


def test_over_layers():
    window, far, log_n = (parse(each) for each in ("window:window=4", "rerope:window=9", "log_n"))
    own = Extension(reach=window.reach, layers={0: far, -1: log_n})
    line = Extension(layers={-1: far})
    assert line.over(own) == Extension(reach=window.reach, layers={0: far, -1: far + log_n})
    assert Extension().over(own) == own
    assert own.over(Extension()) == own


def test_a_schedule_over_another_takes_its_temperature_along():
    known = {"trained_len": 64, "target_len": 256}
    below, above = parse("dynamic_yarn+log_n", **known), parse("yarn", **known)
    assert above.over(below) == parse("yarn", **known).over(parse("log_n"))
    assert [spec.name for spec in above.over(below).scales] == ["log_n", "yarn_temperature"]
    undone = parse("instead").over(below)
    assert (undone.frequencies, [spec.name for spec in undone.scales]) == (None, ["log_n"])
    assert parse("log_n").over(parse("yarn", **known)) == parse("yarn+log_n", **known)


STRETCHED = ByParts(factor=4)
DYNAMIC = Dynamic(inner=ByParts(factor=1))


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("yarn:factor=4+resonance", Resonance(inner=STRETCHED)),
        ("resonance+yarn:factor=4", Resonance(inner=STRETCHED)),
        ("by_parts:factor=4+cope", CoPE(inner=STRETCHED)),
        ("dynamic_yarn+cope:clip=hard", CoPE(clip="hard", inner=DYNAMIC)),
        ("yarn:factor=4+cope+resonance", Resonance(inner=CoPE(inner=STRETCHED))),  # the later around the earlier
        ("cope+yarn:factor=4+resonance", Resonance(inner=CoPE(inner=STRETCHED))),
        ("cope+resonance+yarn:factor=4", Resonance(inner=CoPE(inner=STRETCHED))),
        ("yarn:factor=4+resonance+cope", CoPE(inner=Resonance(inner=STRETCHED))),
        ("rope+resonance", Resonance(inner=RoPE())),
        ("resonance", Resonance()),
        ("resonance+cope", CoPE(inner=Resonance())),
        ("resonance+resonance", Resonance()),  # as any part that both have
        ("yarn:factor=4+partial:share=0.5", Partial(share=0.5, inner=STRETCHED)),
        ("p_rope+yarn:factor=4+resonance", Resonance(inner=Partial(share=0.75, over="head", inner=STRETCHED))),
        ("frequencies.resonance:inner=(by_parts:factor=4)+cope", CoPE(inner=Resonance(inner=STRETCHED))),
        ("by_parts:factor=4+frequencies.resonance:inner=(by_parts:factor=4)", Resonance(inner=STRETCHED)),
    ],
)
def test_a_wrapper_goes_around_the_schedule_beside_it(line, schedule):
    extension = parse(line)
    assert extension.frequencies == schedule
    assert parse(f"frequencies.{schedule}").frequencies == schedule
    assert Extension.from_json(json.dumps(extension.to_json())) == extension
    named = [spec.name for spec in extension.scales]
    assert named == (["yarn_temperature"] if "yarn:" in line else ["dynamic"] if "dynamic" in line else [])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("yarn:factor=4+pi:factor=4", "yarn and pi are both schedules; keep one"),
        ("yarn:factor=4+cope+rope", "yarn and rope are both schedules; keep one"),
        ("resonance+yarn+cope+dynamic_yarn", "yarn and dynamic_yarn are both schedules; keep one"),
        ("rerope+window:window=8", "rerope and window are both reaches; keep one"),
        ("yarn:factor=4+yarn:factor=8", "by_parts:factor=4 and by_parts:factor=8 are both schedules; keep one"),
        ("yarn:factor=4+cope+cope:clip=hard", "cope and cope:clip=hard both have cope; name cope once"),
    ],
)
def test_two_schedules_or_one_wrapper_twice_are_a_conflict(line, sentence):
    with pytest.raises(Conflict, match=sentence):
        parse(line, trained_len=8192, target_len=65_536)
    with pytest.raises(Conflict, match=sentence):
        read_line(line)  # before a model is loaded


def test_a_wrapper_that_stands_around_another_too_is_a_conflict():
    with pytest.raises(Conflict, match=r"cope:inner=.* and resonance both have resonance; name resonance once"):
        parse("resonance+cope+resonance")


@pytest.mark.parametrize("line", ["ms_poe+yarn:factor=4", "yarn:factor=4+ms_poe"])
def test_a_schedule_that_heads_would_not_have_is_a_conflict(line):
    with pytest.raises(Conflict, match=r"(ms_poe and yarn|yarn and ms_poe) are both schedules; keep one"):
        parse(line, layers=4, key_heads=2)
    assert parse("ms_poe+cope", layers=4, key_heads=2).layers  # a wrapper goes around each
    by_hand = Extension(
        frequencies=parse("yarn:factor=4").frequencies, layers=parse("ms_poe", layers=4, key_heads=2).layers
    )
    assert by_hand.layers  # in one extension it is what was written


PARTS = ("yarn:factor=4", "resonance", "cope", "p_rope", "log_n", "window:window=8", "instead")


@given(st.permutations(PARTS), st.integers(0, len(PARTS)), st.integers(0, len(PARTS)))
def test_sums_do_not_depend_on_brackets(parts, first, second):
    """Wrappers in any order, the schedule at any place: (a + b) + c = a + (b + c)."""
    first, second = sorted((first, second))
    groups = [sum((parse(part) for part in group), Extension()) for group in split(parts, first, second)]
    one, two, three = groups
    assert (one + two) + three == one + (two + three)
    wrappers = [part for part in parts if part in ("resonance", "cope", "p_rope")]
    outermost = parse(wrappers[-1]).frequencies
    assert dataclasses.replace((one + two + three).frequencies, inner=None) == outermost


def split(parts, first, second):
    return parts[:first], parts[first:second], parts[second:]


def test_a_layers_wrapper_goes_around_the_schedule_of_the_whole():
    """What is open in a layer is what is in force there."""
    whole = parse("yarn:factor=4") + Extension(layers={0: parse("resonance"), -1: parse("rope+resonance")})
    assert whole.at_layer(0, FACTS).frequencies == Resonance(inner=STRETCHED)
    assert whole.at_layer(1, FACTS).frequencies == STRETCHED
    assert whole.at_layer(-1, FACTS).frequencies == Resonance(inner=RoPE())
    assert Extension.from_json(whole.to_json()) == whole
    assert (parse("hwfa:layers=4,window=4") + parse("resonance")).at_layer(-1, FACTS).frequencies == NoPE()


def test_a_wrapper_over_a_schedule_keeps_it_and_its_temperature():
    """A model that was trained under YaRN, and a line that says resonance."""
    trained = parse("yarn:factor=4+log_n")
    assert parse("resonance").over(trained) == Extension(
        frequencies=Resonance(inner=STRETCHED), scales=(YarnTemperature(factor=4), LogN())
    )
    assert parse("rope+resonance").over(trained) == parse("rope+resonance+log_n")
    assert parse("resonance+instead").over(trained) == parse("resonance+instead+log_n")
    assert parse("log_n").over(parse("resonance")) == parse("resonance+log_n")


def test_the_description_has_every_schedule_from_the_outside_in():
    text = parse("yarn:factor=4+cope+resonance").describe()
    titles = [line for line in text.splitlines() if line.startswith("frequencies.")]
    inside = "cope:inner=(by_parts:factor=4)"
    assert titles == [f"frequencies.{name}" for name in (f"resonance:inner=({inside})", inside, "by_parts:factor=4")]
    assert "keep_i = 1 - clamp" in " ".join(text.split())
