"""Papers by name: what each is made of, the authors' values, and what follows from the lengths alone."""

import inspect

import pytest

from ropewalk import Extension, Facts, parse, presets
from ropewalk.frequencies import NTK, ByParts, Dynamic, Interpolation, LongRoPE
from ropewalk.pages import page_of
from ropewalk.parsing import PRESETS
from ropewalk.presets.training import hwfa_window
from ropewalk.reach import DualChunk, LambdaMask, LeakyReRoPE, ReRoPE, SelfExtend, Sinks, Window

from examples import FACTS
from golden_tables import golden

CONTEXT = {"trained_len": 4096, "target_len": 32768, "layers": 24}
ASKED_FOR = {
    *("pi", "ntk", "dynamic_ntk", "by_parts", "yarn", "dynamic_yarn", "abf", "llama3", "longrope"),
    *("alibi", "kerple", "sandwich", "xpos", "window", "hwfa", "hwfa_rerope", "randomized", "nope"),
    *("rerope", "leaky_rerope", "self_extend", "dual_chunk", "lm_infinite", "streaming", "log_n"),
}
MODEL = Facts(trained_len=4096, head_dim=128, heads=32, layers=24)


def test_every_paper_is_there():
    assert set(PRESETS) >= ASKED_FOR
    assert len(PRESETS) == len(presets.ALL)


@pytest.mark.parametrize("name", PRESETS)
def test_the_lengths_are_enough(name):
    """Every preset comes from the two lengths (and the number of layers), serves the model, and survives JSON."""
    extension = parse(name, **CONTEXT)
    extension.check_against(MODEL)
    assert Extension.from_json(extension.to_json()) == extension


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_its_source(name):
    page = page_of(PRESETS[name])
    assert page.idea
    assert page.source


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_keywords_with_known_names(name):
    for parameter in inspect.signature(PRESETS[name]).parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY


@pytest.mark.parametrize(
    ("name", "slot", "expected"),
    [
        ("pi", "frequencies", Interpolation(factor=8)),
        ("ntk", "frequencies", NTK(factor=8)),
        ("dynamic_ntk", "frequencies", Dynamic(inner=NTK(factor=1))),
        ("yarn", "frequencies", ByParts(factor=8)),
        ("longrope", "frequencies", ByParts(factor=8, mix="wavelength")),
        ("rerope", "reach", ReRoPE(window=1024)),
        ("leaky_rerope", "reach", LeakyReRoPE(window=1024, leak=31)),
        ("self_extend", "reach", SelfExtend(window=1024, group=19)),
        ("dual_chunk", "reach", DualChunk(chunk=3072, local=512)),
        ("lm_infinite", "reach", LambdaMask(window=4096, n_sink=10)),
        ("streaming", "reach", Sinks(window=4092, n_sink=4)),
        ("window", "reach", Window(window=4096)),
    ],
)
def test_the_authors_values(name, slot, expected):
    assert getattr(parse(name, **CONTEXT), slot) == expected


def test_leak_and_group_keep_the_longest_distance_familiar():
    """leaky: at most L/2 at the target; self-extend: at most 2L/3."""
    leaky, grouped = (parse(name, **CONTEXT).reach for name in ("leaky_rerope", "self_extend"))
    assert leaky.window + (32768 - leaky.window) / leaky.leak == 2048
    assert grouped.window + (32768 - grouped.window) / grouped.group <= 4096 * 2 / 3


def test_without_a_target_the_authors_defaults_stand():
    assert parse("leaky_rerope", trained_len=4096).reach == LeakyReRoPE(window=1024, leak=16)
    assert parse("self_extend", trained_len=4096).reach == SelfExtend(window=1024, group=8)
    assert parse("llama3").frequencies.factor == 8
    assert parse("llama3:factor=32").frequencies.factor == 32


def test_hwfa_window_rule():
    rule = golden("hwfa")["N512_L24"]
    assert hwfa_window(24, 512) == rule["used"] == 16
    assert rule["alpha_of_16"] * 512 == (16 - 1) * 23 + 1
    assert hwfa_window(2, 512) == 256


def test_hwfa():
    extension = parse("hwfa:layers=24,trained_len=512")
    assert extension.reach == Window(window=16)
    ((layer, last),) = extension.layers
    assert layer == -1
    assert last == parse("nope+causal+log_n:clipped=false")


def test_hwfa_rerope_puts_two_full_layers_between_windows():
    extension = parse("hwfa_rerope", trained_len=512, layers=24)
    assert extension.reach == Window(window=64)
    assert dict(extension.layers) == {place: parse("rerope:window=256+log_n") for place in (8, 16)}


def test_longrope_takes_searched_divisors():
    extension = parse("longrope:factor=4,long=[1,2,3,4,5,6,7,8]")
    assert extension.frequencies == LongRoPE(long=(1, 2, 3, 4, 5, 6, 7, 8))
    extension.check_against(FACTS)


def test_xpos_composes_with_its_inference_attention():
    both = parse("xpos+bca", **CONTEXT)
    assert both.reach.block == 4096
    assert parse("bca", trained_len=4097).reach.block == 4096
