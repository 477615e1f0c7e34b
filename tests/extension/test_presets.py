"""Papers by name: what each is made of, the authors' values, and what follows from the lengths alone."""

import inspect
import math
from dataclasses import replace
from functools import cache

import pytest
import torch

from ropewalk import Extension, Facts, InvalidValue, parse
from ropewalk.equation import reference_weights
from ropewalk.extension import presets
from ropewalk.extension.parsing import PRESETS
from ropewalk.extension.presets import needs
from ropewalk.extension.presets.training import hwfa_window
from ropewalk.methods.biases import FarDiscount
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.frequencies import ABF, NTK, ByParts, Dynamic, Interpolation, LongRoPE, Partial
from ropewalk.methods.reach import (
    DPE,
    SELF,
    Causal,
    Chunks,
    DualChunk,
    LambdaMask,
    LaMPE,
    LeakyReRoPE,
    ReadingWindow,
    ReRoPE,
    ReRoPEByParts,
    SelfExtend,
    Sinks,
    String,
    Window,
    furthest,
)
from ropewalk.methods.scales import LogN
from ropewalk.train.recipes.pretrain import without_rerope

from examples import FACTS
from golden_tables import golden

CONTEXT = {"trained_len": 4096, "target_len": 32768, "layers": 24, "key_heads": 32}
ASKED_FOR = {
    *("pi", "ntk", "dynamic_ntk", "by_parts", "yarn", "dynamic_yarn", "abf", "llama3", "longrope"),
    *("alibi", "kerple", "bam", "sandwich", "xpos", "window", "hwfa", "hwfa_rerope", "randomized", "nope"),
    *("string", "rope_id", "ministral3", "ssmax", "swan", "rnope_swa", "irope", "dpe", "long_reach"),
    *("lampe", "self_logistic"),
    *("rerope", "leaky_rerope", "rerope_by_parts", "self_extend", "dual_chunk", "lm_infinite", "streaming", "log_n"),
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
        ("p_rope", "frequencies", Partial(share=0.75, over="head")),
        ("longrope", "frequencies", ByParts(factor=8, mix="wavelength")),
        ("rerope", "reach", ReRoPE(window=1024)),
        ("leaky_rerope", "reach", LeakyReRoPE(window=1024, leak=31)),
        ("rerope_by_parts", "reach", ReRoPEByParts(window=1536, leak=(32768 - 1536) / 1536)),
        ("long_reach", "reach", ReRoPEByParts(window=1536, leak=(32768 - 1536) / 1536)),
        ("long_reach", "biases", (FarDiscount(window=1536, strength=0.3),)),
        ("long_reach", "scales", (LogN(strength=1.5),)),
        ("self_extend", "reach", SelfExtend(window=1024, group=19)),
        ("dpe", "reach", DPE(window=1024, groups=(38, 608, 608, 38, 38, 38, 38, 19))),
        ("dual_chunk", "reach", DualChunk(chunk=3072, local=512)),
        ("string", "reach", String(shift=1365, local=128)),
        ("self_logistic", "reach", SELF(window=1024, capacity=22)),
        ("lampe", "reach", LaMPE(head=256, tail=102, length=32768, mapped=3072)),
        ("lm_infinite", "reach", LambdaMask(window=4096, n_sink=10)),
        ("streaming", "reach", Sinks(window=4092, n_sink=4)),
        ("window", "reach", Window(window=4096)),
    ],
)
def test_the_authors_values(name, slot, expected):
    assert getattr(parse(name, **CONTEXT), slot) == expected


def test_swaa_reads_with_the_authors_window_in_every_second_layer():
    """SWAAConfig(sliding_window_size=2048, keep_first=100, force_fa_decode=True, non_sliding_layers=[1, 3, 5])."""
    swaa = parse("swaa", **CONTEXT)
    assert swaa.reach == ReadingWindow(window=2048, n_sink=100)
    assert [layer for layer in range(24) if swaa.at_layer(layer, MODEL).reach == Causal()] == list(range(1, 24, 2))
    rare = parse("swaa:every=4", trained_len=512, layers=8)  # every fourth from layer 1, as they train
    assert rare.reach == ReadingWindow(window=256, n_sink=12)
    assert [layer for layer, _ in rare.layer_items] == [1, 5]
    assert parse("swaa:every=0", **CONTEXT).layers == ()
    with pytest.raises(InvalidValue, match="every must be 0, or at least 2, got 1; every=1 would be the"):
        parse("swaa:every=1", **CONTEXT)


@pytest.mark.parametrize(("trained_len", "expected"), [(131_072, (43_690, 128)), (512, (170, 42)), (16, (5, 1))])
def test_string_moves_keys_nearer_for_every_trained_length(trained_len, expected):
    reach = parse("string", trained_len=trained_len).reach
    assert (reach.shift, reach.local) == expected
    reach.check_against(Facts(trained_len=trained_len, head_dim=8))


def test_lampe_maps_a_text_by_a_sigmoid_of_its_length():
    """The authors' sizes of 8,192; at growth n + offset = 0 half of the limit, at ln 3 three quarters of it."""
    sizes = {"trained_len": 8192, "target_len": 32768}
    assert parse("lampe", **sizes).reach == LaMPE(head=512, tail=200, length=32768, mapped=6144)
    middle = parse(f"lampe:growth={1 / 32768},offset=-1", **sizes).reach
    assert isinstance(middle, LaMPE)
    assert middle.mapped == 3072
    steeper = parse(f"lampe:growth={math.log(3) / 32768}", **sizes).reach
    assert isinstance(steeper, LaMPE)
    assert abs(steeper.mapped - 4608) <= 1  # 3/4 of 6,144, less what rounding takes
    short = parse("lampe", trained_len=8192, target_len=4096).reach
    assert isinstance(short, LaMPE)
    assert short.mapped == 4094


@pytest.mark.parametrize(("trained_len", "target_len"), [(4096, 32768), (512, 32768), (32, 128), (8192, 16384)])
def test_the_capacity_of_self_is_the_least_that_keeps_the_longest_distance_familiar(trained_len, target_len):
    reach = parse("self_logistic", trained_len=trained_len, target_len=target_len).reach
    assert isinstance(reach, SELF)
    distances = [furthest(replace(reach, capacity=reach.capacity - less), target_len - 1) for less in (0, 1)]
    assert distances[0] <= trained_len * 2 / 3 < distances[1]


def test_a_rate_too_low_for_the_target_is_refused():
    with pytest.raises(InvalidValue, match=r"rate must be high enough for groups of 19 tokens on average.*got 0.0001"):
        parse("self_logistic:rate=0.0001", **CONTEXT)
    assert parse("self_logistic", trained_len=4096).reach == SELF(window=1024, capacity=33)


@pytest.mark.parametrize("trained_len", [64, 512, 4096, 131_072])
@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_all_that_rotates_under_rope_id_comes_round_in_training(trained_len, head_dim):
    """Half of the pairs, the slowest by a full turn or a little more; not so with a base of 10,000."""
    facts = Facts(trained_len=trained_len, head_dim=head_dim)
    schedule = parse("rope_id", trained_len=trained_len).frequencies
    assert schedule is not None
    angles = schedule.table(facts, 1).inv_freq * trained_len
    assert len(angles) == head_dim // 4
    assert angles[0] == trained_len
    assert 2 * math.pi <= angles.min() < 2 * math.pi * trained_len ** (4 / head_dim)
    plain = Partial(share=0.5).table(facts, 1).inv_freq * trained_len
    assert plain.min() < 2 * math.pi or trained_len == 131_072


def test_rope_id_takes_another_base_and_share():
    got = parse("rope_id:share=0.25,new_base=50", trained_len=4096).frequencies
    assert got == Partial(share=0.25, inner=ABF(new_base=50))


def test_leak_and_group_keep_the_longest_distance_familiar():
    """leaky: at most L/2 at the target; self-extend: at most 2L/3."""
    leaky, grouped = (parse(name, **CONTEXT).reach for name in ("leaky_rerope", "self_extend"))
    assert leaky.window + (32768 - leaky.window) / leaky.leak == 2048
    assert grouped.window + (32768 - grouped.window) / grouped.group <= 4096 * 2 / 3


def test_without_a_target_the_authors_defaults_stand():
    assert parse("leaky_rerope", trained_len=4096).reach == LeakyReRoPE(window=1024, leak=16)
    assert parse("rerope_by_parts", trained_len=4096).reach == ReRoPEByParts(window=1536, leak=16)
    assert parse("self_extend", trained_len=4096).reach == SelfExtend(window=1024, group=8)
    assert parse("dpe", trained_len=4096).reach == DPE(window=1024, groups=(16, 256, 256, 16, 16, 16, 16, 8))
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


@pytest.mark.parametrize(("trained_len", "sizes"), [(512, (32, 16)), (64, (16, 16)), (20, (10, 10))])
def test_windows_of_short_trained_lengths_are_not_tiny(trained_len, sizes):
    swan, irope = (parse(name, trained_len=trained_len, layers=4).reach for name in ("swan", "irope"))
    assert (swan.window, irope.chunk) == sizes


def full_layers(extension):
    return [layer for layer, override in extension.layer_items if override.reach == Causal()]


def test_swan_begins_with_a_full_layer():
    """SWAN-GPT: one layer with full attention and three with windows of 512, of 8,192 trained tokens."""
    extension = parse("swan", trained_len=8192, layers=24)
    assert extension.reach == Window(window=512)
    assert full_layers(extension) == [0, 4, 8, 12, 16, 20]
    assert dict(extension.layers)[0] == parse("nope+causal+log_n")


def test_rnope_swa_ends_with_a_full_layer():
    """Command R7B: three layers with windows of 4,096 and one with full attention, of 8,192 trained tokens."""
    extension = parse("rnope_swa", trained_len=8192, layers=32)
    assert extension.reach == Window(window=4096)
    assert full_layers(extension) == [3, 7, 11, 15, 19, 23, 27, 31]
    assert dict(extension.layers)[31] == parse("nope+causal")


def test_irope_is_llama_4_scout():
    """Chunks of 8,192 and floor_scale 8,192, of 262,144 trained tokens; every fourth layer does not rotate."""
    extension = parse("irope", trained_len=262_144, layers=48)
    assert extension.reach == Chunks(chunk=8192)
    assert full_layers(extension) == [layer for layer in range(48) if (layer + 1) % 4 == 0]
    assert dict(extension.layers)[3] == parse("nope+causal+llama4_temperature:length=8192,first=1")


@pytest.mark.parametrize(("line", "least"), [("swan", 2), ("rnope_swa", 4), ("irope", 4), ("irope:every=2", 2)])
def test_both_kinds_of_layers_are_there(line, least):
    kinds = {layer in full_layers(parse(line, trained_len=512, layers=least)) for layer in range(least)}
    assert kinds == {True, False}
    with pytest.raises(InvalidValue, match=f"layers must be at least {least}, for full layers and others"):
        parse(line, trained_len=512, layers=least - 1)


OVER = {name: set(inspect.signature(preset).parameters) for name, preset in PRESETS.items()}
LAYERED = [name for name, parameters in OVER.items() if "layers" in parameters and "key_heads" not in parameters]
SMALL = Facts(trained_len=64, head_dim=16, heads=8)
DRAWN = [torch.randn(1, 8, 128, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
FROM_LAYERS = {"hwfa_rerope": 4, "rnope_swa": 4, "irope": 4, "ms_poe": 3}


@cache
def attention(local, rows):
    """What one layer computes of the same queries and keys."""
    q, k = (x[:, :, :rows] for x in DRAWN)
    return reference_weights(q, k, local, SMALL, weights=local.weights(SMALL, torch.Generator().manual_seed(0)))


@cache
def equal_layers(local, other, rows):
    return torch.allclose(attention(local, rows), attention(other, rows))


def equal(extension, other, layers, rows):
    """Whether all layers compute the same under both."""
    facts = replace(SMALL, layers=layers)
    pairs = [(extension.at_layer(layer, facts), other.at_layer(layer, facts)) for layer in range(layers)]
    return all(equal_layers(*pair, rows) for pair in pairs)


@pytest.mark.sampled(cases=14)
@pytest.mark.parametrize("layers", range(2, 13))
@pytest.mark.parametrize("name", LAYERED)
def test_a_preset_over_layers_is_no_other_preset_on_any_number_of_layers(name, layers):
    """In running, at twice the trained length; and in training, where ReRoPE is left out. Else it is refused."""
    lengths = {"trained_len": 64, "target_len": 128, "layers": layers, "key_heads": SMALL.groups}
    if layers < FROM_LAYERS.get(name, 1):
        with pytest.raises(InvalidValue):
            parse(name, **lengths)
        return
    extension = parse(name, **lengths)
    for other in PRESETS:
        if other == name or layers < FROM_LAYERS.get(other, 1):
            continue
        composition = parse(other, **lengths)
        assert not equal(extension, composition, layers, 128), other
        if other == "rope" or needs(other) == "training":
            assert not equal(without_rerope(extension), without_rerope(composition), layers, 64), other


@pytest.mark.parametrize("name", [name for name in LAYERED if needs(name) == "training"])
def test_a_window_that_hides_nothing_in_training_is_refused(name):
    kind = "chunk" if name == "irope" else "window"
    parse(f"{name}:{kind}=511", trained_len=512, layers=12)
    with pytest.raises(InvalidValue, match=rf"{kind} must be below the trained length \(512\), or nothing is hidden"):
        parse(f"{name}:{kind}=512", trained_len=512, layers=12)


def test_hwfa_rerope_on_three_layers_would_be_plain_rotation_in_training():
    """Three trained lengths over three layers are the trained length: a window that hides nothing."""
    with pytest.raises(InvalidValue, match=r"window must be below the trained length.*state a smaller window"):
        parse("hwfa_rerope", trained_len=64, layers=3)
    extension = without_rerope(parse("hwfa_rerope:window=42", trained_len=64, layers=3))
    assert not equal(extension, parse("rope"), 3, 64)


def test_ministral_3_has_its_own_temperature_and_not_yarns():
    expected = parse("by_parts:factor=16+llama4_temperature")
    assert parse("ministral3", trained_len=16_384, target_len=262_144) == expected


def test_longrope_takes_searched_divisors():
    extension = parse("longrope:factor=4,long=[1,2,3,4,5,6,7,8]")
    assert extension.frequencies == LongRoPE(long=(1, 2, 3, 4, 5, 6, 7, 8))
    extension.check_against(FACTS)


def test_xpos_composes_with_its_inference_attention():
    assert parse("xpos+bca", **CONTEXT).reach.block == 4096
    assert parse("bca", trained_len=4097).reach.block == 4096
