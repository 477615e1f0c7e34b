"""Checkpoints that come with a schedule of their own: it is the ground that every extension stands on."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ropewalk import (
    Conflict,
    DoesNotFit,
    Extension,
    Facts,
    InvalidValue,
    UnknownName,
    extend,
    extended,
    inspect,
    load,
    parse,
    save,
)
from ropewalk.engines.export import export
from ropewalk.hf.probe.facts import correct, lengths_of
from ropewalk.methods.frequencies import NTK, ByParts, Dynamic, Interpolation

from hf.models import tiny
from hf.released import CONFIGS, small
from hf.traces import logits, trace

CLOSE = 1e-4
IDS = torch.randint(3, 97, (1, 60), generator=torch.Generator().manual_seed(5))
RUN = list(CONFIGS)
CHUNKED = "Llama-4-Scout"  # its rotating layers keep their chunks, so a schedule changes none of them
SHORT = {"Phi-3-mini-128k": 32, "Phi-4-mini": 32}  # up to where the bare model's batch has its short table
SHARED = "gpt-oss-20b"  # one table for its layers with windows, which are left alone, and for those without
STATIC = [name for name in RUN if name not in (*SHORT, SHARED, CHUNKED, "internlm2.5-like, dynamic")]
IDENTITIES = [
    *("pi:factor=1", "ntk:factor=1", "by_parts:factor=1", "frequencies.by_parts:factor=1,ramp=turns"),
    *(
        "frequencies.ntk_old:factor=1",
        "frequencies.ntk_fixed:factor=1",
        "ntk_mixed:factor=1",
        "llama3:factor=1",
        "rope",
    ),
]


def ids_for(name):
    return IDS[:, : SHORT.get(name, 60)]


def error(got, expected):
    return float((got - expected).abs().max() / expected.abs().max())


def own_tables(model):
    """What transformers' own rotary module holds, by its own code: a table for each kind of layer that is stretched."""
    rotary = model.model.rotary_emb
    names = [name for name, _ in rotary.named_buffers() if name.endswith("inv_freq") and "original" not in name]
    return {name: getattr(rotary, name).clone().double() for name in names if "sliding" not in name}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_trained_length_is_what_the_makers_trained_to_with_their_schedule(name):
    kind, settings, trained, original = CONFIGS[name]
    assert lengths_of(AutoConfig.for_model(kind, **settings)) == (trained, original)


def test_a_length_that_is_stated_nowhere_is_asked_for():
    config = SimpleNamespace(rope_parameters={"rope_type": "linear", "factor": 4.0}, max_position_embeddings=None)
    with pytest.raises(DoesNotFit, match="trained-len"):
        lengths_of(config)
    assert lengths_of(config, corrected=4096).trained == 4096


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", RUN)
def test_factor_1_is_the_identity_on_every_model(name):
    model, ids = small(name), ids_for(name)
    bare, before = logits(model, ids, use_cache=False), trace(model)
    for line in IDENTITIES if name in ("Llama-3.1-8B", "gemma-3-4b", "Phi-4-mini") else IDENTITIES[:3]:
        for mode in (None, "attention"):
            with extended(model, line, mode=mode):
                assert error(logits(model, ids, use_cache=False), bare) < CLOSE, (line, mode)
    assert trace(model) == before


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("name", [name for name in RUN if name != CHUNKED])
def test_dynamic_schedules_are_the_identity_within_the_trained_length(name):
    """Bit for bit what the same way gives under the identity, and the bare model within rounding."""
    model, ids = small(name), ids_for(name)
    bare = logits(model, ids, use_cache=False)
    assert inspect(model).facts.trained_len >= 60
    identity = "rope" if name.startswith("internlm") else Extension()
    with extended(model, identity, mode="attention"):
        same = logits(model, ids, use_cache=False)
    assert error(same, bare) < CLOSE
    for line in ("dynamic_yarn", "dynamic_ntk"):
        with extended(model, line):
            assert torch.equal(logits(model, ids, use_cache=False), same)


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("name", STATIC)
def test_a_schedule_maps_the_table_that_the_checkpoint_came_with(name):
    """Each formula worked again from transformers' own table, as that stands in its module."""
    model = small(name)
    trained = inspect(model).facts.trained_len
    for key, own in own_tables(model).items():
        pair = torch.arange(len(own), dtype=torch.float64)
        turns = trained * own / (2 * math.pi)
        keep = ((turns - 1) / 31).clamp(0, 1)
        expected = {
            "pi:factor=3": own / 3,
            "ntk:factor=3": own * 3 ** (-2 * pair / (2 * len(own) - 2)),
            "frequencies.by_parts:factor=3,ramp=turns": keep * own + (1 - keep) * own / 3,
            "frequencies.none": own * 0,
        }
        for line, table in expected.items():
            with extended(model, line):
                torch.testing.assert_close(own_tables(model)[key], table, rtol=1e-6, atol=0)


def test_turns_are_counted_on_the_own_table():
    """Of a table that falls evenly the index ramp is what the closed form makes of the base that it falls by."""
    plain = Facts(trained_len=4096, head_dim=64, base=80_000.0)
    theta = tuple(80_000.0 ** (-2 * i / 64) for i in range(32))
    measured = Facts(trained_len=4096, head_dim=64, base=10_000.0, inv_freq=theta)
    for schedule in (
        ByParts(factor=8),
        ByParts(factor=8, truncate=False),
        ByParts(factor=8, low_turns=2, high_turns=3),
    ):
        expected = schedule.table(plain, 1).inv_freq
        torch.testing.assert_close(schedule.table(measured, 1).inv_freq, expected, rtol=1e-12, atol=0)
    with_still = Facts(trained_len=4096, head_dim=64, base=80_000.0, inv_freq=(*theta[:20], *[0.0] * 12))
    got = ByParts(factor=8).table(with_still, 1).inv_freq
    torch.testing.assert_close(got[:20], ByParts(factor=8).table(plain, 1).inv_freq[:20], rtol=1e-12, atol=0)
    assert not got[20:].any()


@pytest.mark.sampled(cases=8)
@pytest.mark.parametrize("line", ["yarn:factor=2", "pi:factor=2", "abf:new_base=4000000", "yarn:factor=2+instead"])
@pytest.mark.parametrize("name", RUN)
def test_both_ways_are_one_model(name, line):
    model = small(name)
    with extended(model, line, mode="attention"):
        expected = logits(model, IDS, use_cache=False)
    if name in (SHARED, *SHORT) and not line.endswith("instead"):
        with pytest.raises(DoesNotFit, match=r"same table|same for every row"):
            extend(model, line, mode="tables")
        return
    with extended(model, line, mode="tables"):
        assert error(logits(model, IDS, use_cache=False), expected) < CLOSE


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Llama-3.1-8B", "llama3:factor=8"),
        ("gemma-3-4b", "pi:factor=8"),
        ("Qwen2.5-7B-Instruct with YaRN", "yarn:factor=4"),
        ("DeepSeek-V3", "yarn:factor=40,over=head"),  # its mscale_all_dim multiplies whole logits
        ("Kimi-K2-Instruct", "yarn:factor=32,over=head"),
        ("deepseek-coder-6.7b", "pi:factor=4"),
    ],
)
def test_restating_the_own_schedule(name, line):
    """Instead of itself it changes nothing, mscale in the scaling included; said once more it is refused."""
    model = small(name)
    bare, scaling = logits(model, IDS, use_cache=False), model.model.layers[0].self_attn.scaling
    for mode in ("tables", "attention"):
        with extended(model, f"{line}+instead", mode=mode) as handle:
            assert error(logits(model, IDS, use_cache=False), bare) < CLOSE
            assert "replaces it" in handle.describe()
            if mode == "tables" and name in ("DeepSeek-V3", "Kimi-K2-Instruct"):
                assert model.model.layers[0].self_attn.scaling == pytest.approx(scaling, rel=1e-6)
    with pytest.raises(Conflict, match="instead"):
        extend(model, line)
    with extended(model, line.partition(":")[0], target_len=8 * inspect(model).facts.trained_len) as handle:
        assert "builds on it" in handle.describe()


@pytest.mark.parametrize("name", [name for name in RUN if name != SHARED])
def test_undoing_the_own_schedule(name):
    """`instead` alone: the same weights as if nobody had ever stretched them."""
    kind, settings, _, _ = CONFIGS[name]
    model = small(name)
    plain = small(name, rope_scaling=None) if "rope_scaling" in settings else small(name)
    if kind == "ministral3":
        keys = ("rope_theta", "original_max_position_embeddings", "llama_4_scaling_beta")
        own = model.config.rope_parameters
        plain = small(name, rope_parameters={"rope_type": "default", **{key: own[key] for key in keys}})
    with extended(model, "instead"):
        assert error(logits(model, IDS, use_cache=False), logits(plain, IDS, use_cache=False)) < CLOSE


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize("line", ["yarn:factor=2", "pi:factor=2", "yarn:factor=2+instead", "dynamic_yarn"])
def test_saved_and_loaded_it_is_the_same(name, line, tmp_path):
    model = small(name)
    with extended(model, line):
        expected = logits(model, IDS, use_cache=False)
        far = torch.arange(90, 150)[None]
        further = logits(model, IDS, position_ids=far, use_cache=False)
        how = save(model, tmp_path / "model")
    again = load(tmp_path / "model").eval()
    assert error(logits(again, IDS, use_cache=False), expected) < CLOSE
    assert error(logits(again, IDS, position_ids=far, use_cache=False), further) < CLOSE
    if how.startswith("transformers."):
        theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
        assert error(logits(theirs, IDS, use_cache=False), expected) < CLOSE


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize(
    ("name", "line", "kind"),
    [
        ("Llama-3.1-8B", "pi:factor=2", "longrope"),
        ("Llama-3.1-8B", "yarn:factor=2", "longrope"),
        ("Llama-3.1-8B", "yarn:factor=2+instead", "yarn"),
        ("gemma-3-4b", "pi:factor=2", "linear"),
        ("gemma-3-4b", "yarn:factor=2", "longrope"),
        ("gemma-4", "pi:factor=2", "proportional"),
        ("deepseek-coder-6.7b", "pi:factor=2", "linear"),
        ("Qwen3-8B with YaRN", "yarn:factor=2", "longrope"),
        ("DeepSeek-V3", "pi:factor=2", "longrope"),
        ("Ministral-3-8B", "pi:factor=2", "longrope"),
    ],
)
def test_a_composed_table_is_saved_under_the_name_that_says_it_else_as_divisors(name, line, kind, tmp_path):
    model = small(name)
    with extended(model, line):
        assert save(model, tmp_path / "model").startswith("transformers.")
        export(model, tmp_path / "exported", target="transformers")
    for place in ("model", "exported"):
        parameters = json.loads((tmp_path / place / "config.json").read_text())["rope_parameters"]
        parameters = parameters.get("full_attention", parameters)
        assert parameters["rope_type"] == kind
        if (name, kind) == ("gemma-3-4b", "linear"):
            assert parameters["factor"] == 16
        if name == "Ministral-3-8B":  # its temperature by position is read from these
            assert (parameters["llama_4_scaling_beta"], parameters["original_max_position_embeddings"]) == (0.1, 128)


def test_each_row_of_a_model_with_two_tables_has_its_own():
    """A row within the short table is the bare model's of a short text; one beyond it is worked from the long one."""
    model = small("Phi-3-mini-128k", num_hidden_layers=1)
    long = logits(model, IDS, use_cache=False)  # one layer: a row depends on its own table alone
    short = logits(model, IDS[:, :32], use_cache=False)
    with extended(model, Extension(), mode="attention") as handle:
        got = logits(model, IDS, use_cache=False)
        assert "every row takes its own" in handle.describe()
        with torch.no_grad():
            cache = model(input_ids=IDS[:, :20]).past_key_values
        rest = logits(model, IDS[:, 20:], past_key_values=cache)
    assert error(got[:, :32], short) < CLOSE
    assert error(got[:, 32:], long[:, 32:]) < CLOSE
    assert error(rest, got[:, 20:]) < CLOSE


def test_where_some_dimensions_turn_a_temperature_of_the_models_own_is_of_those_alone():
    model = small("Phi-4-mini")
    assert inspect(model).layers[0].temperature > 1.1
    bare = logits(model, IDS[:, :32], use_cache=False)
    with extended(model, Extension(), mode="attention"):
        assert error(logits(model, IDS[:, :32], use_cache=False), bare) < CLOSE


def test_a_corrected_trained_length_counts_everywhere(tmp_path):
    model = tiny("llama", num_hidden_layers=1, max_position_embeddings=32)
    with extended(model, "dynamic_ntk", trained_len=48) as handle:
        assert handle.facts.trained_len == 48
        expected = logits(model, IDS, use_cache=False)
        save(model, tmp_path / "model")
    again = load(tmp_path / "model").eval()
    assert torch.equal(logits(again, IDS, use_cache=False), expected)
    assert inspect(again).facts.trained_len == 48
    assert inspect(model, trained_len=40).target_len == 320
    with extended(model, "yarn", target_len=96, trained_len=48) as handle:
        assert handle.extension.frequencies_or_rope.factor == 2
    correct(model, 64)
    assert inspect(model).facts.trained_len == 64
    with extended(model, "yarn", target_len=128) as handle:
        assert handle.extension.frequencies_or_rope.factor == 2
    with pytest.raises(InvalidValue, match="trained_len"):
        extend(model, "yarn:factor=2", trained_len=0)


def test_what_a_checkpoint_came_with_is_said():
    assert str(inspect(small("Llama-3.1-8B"))).count("llama3, factor 8 (64 to 1,024 tokens)") == 1
    assert "linear, factor 8 (128 to 1,024 tokens) in some layers" in str(inspect(small("gemma-3-4b")))
    assert "mscale_all_dim 1" in str(inspect(small("DeepSeek-V3")))
    assert "its own schedule" not in str(inspect(tiny("llama")))
    model = small("Llama-3.1-8B")
    for line, words in (("log_n", "it is kept"), ("pi:factor=2", "builds on it"), ("instead", "replaces it")):
        with extended(model, line) as handle:
            assert words in handle.describe()
    with extended(tiny("llama"), "pi:factor=2") as handle:
        assert "without a schedule of its own" in handle.describe()


def test_a_schedule_whose_length_nobody_knows_asks_for_it(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    fitted = "longrope:long=[1,1,2,2,3,3,4,4],factor=4"
    with extended(model, fitted.replace("long=", "short=[1,1,2,2,3,3,4,4],long=")):
        with pytest.raises(DoesNotFit, match="target_len"):
            save(model, tmp_path / "model")
        assert not (tmp_path / "model").exists()
        assert save(model, tmp_path / "model", target_len=128).startswith("transformers.")


@pytest.mark.parametrize("line", ["yarn+instead", "yarn"])
def test_a_target_is_beyond_what_the_line_builds_on(line):
    """Instead of its schedule a stretched model may be stretched less; on top of it only further."""
    model = small("Qwen2.5-7B-Instruct with YaRN")
    facts = inspect(model).facts
    within = facts.original_len + facts.original_len // 2
    assert facts.original_len < within < facts.trained_len
    if line == "yarn":
        with pytest.raises(DoesNotFit, match=rf"target_len must be above the trained length \({facts.trained_len}\)"):
            extend(model, line, target_len=within)
        return
    with extended(model, line, target_len=within) as handle:
        assert handle.extension.frequencies.factor == pytest.approx(1.5)
    with pytest.raises(DoesNotFit, match=rf"target_len must be above the trained length \({facts.original_len}\)"):
        extend(model, line, target_len=facts.original_len)


def test_the_word_instead():
    line = parse("yarn:factor=4+instead")
    assert line == parse("instead+yarn:factor=4") == Extension.from_json(line.to_json())
    assert line.replaces_scaling
    assert not parse("yarn:factor=4").replaces_scaling
    assert parse("instead") == Extension(replaces_scaling=True)
    assert "instead" in line.describe()
    known = {"trained_len": 128, "original_len": 32, "target_len": 256}
    assert parse("pi", **known).frequencies == Interpolation(factor=2)
    assert parse("pi+instead", **known).frequencies == Interpolation(factor=8)
    with pytest.raises(UnknownName, match="instead has no parameter 'factor'"):
        parse("instead:factor=4")
    with pytest.raises(InvalidValue, match="instead must be true or false"):
        Extension.from_json({"instead": "yes"})
    with pytest.raises(InvalidValue, match="instead"):
        Extension(layers={0: Extension(replaces_scaling=True)})


def test_the_equation_stands_on_the_same_ground():
    facts = Facts(trained_len=128, head_dim=8, base=100.0, inv_freq=(0.5, 0.25, 0.1, 0.0), original_len=32)
    assert facts.unscaled == Facts(trained_len=32, head_dim=8, base=100.0, inv_freq=(*facts.unscaled.inv_freq[:3], 0.0))
    line = Extension(frequencies=Dynamic(inner=NTK(factor=1)), replaces_scaling=True)
    q, k, v = torch.randn(3, 1, 1, 70, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    from ropewalk import attend, reference_attention

    expected = reference_attention(q, k, v, Extension(frequencies=line.frequencies), facts.unscaled)
    for found in (reference_attention(q, k, v, line, facts), attend(q, k, v, line, facts)):
        torch.testing.assert_close(found, expected)
    assert not torch.allclose(reference_attention(q, k, v, Extension(frequencies=line.frequencies), facts), expected)


@pytest.mark.parametrize(
    ("line", "same"),
    [("instead", False), ("frequencies.by_parts:factor=32,truncate=false+yarn_temperature:factor=32+instead", True)],
)
def test_layers_with_windows_lose_the_own_schedule_too_where_they_have_it(line, same):
    """gpt-oss has one schedule in all its layers: replaced in half of them it would be a model that nobody made."""
    model = small(SHARED)
    plain = small(SHARED, rope_scaling=None, rope_parameters={"rope_type": "default", "rope_theta": 150_000.0})
    expected = logits(model if same else plain, IDS, use_cache=False)
    for mode in (None, "attention"):
        with extended(model, line, mode=mode):
            assert error(logits(model, IDS, use_cache=False), expected) < CLOSE
            cache = logits(model, IDS[:, :40]), model(input_ids=IDS[:, :40]).past_key_values
            assert error(logits(model, IDS[:, 40:], past_key_values=cache[1]), expected[:, 40:]) < CLOSE


def test_replaced_a_length_between_the_original_and_the_trained_one_can_be_asked_for():
    model = small("Qwen2.5-7B-Instruct with YaRN")
    with extended(model, "yarn+instead", target_len=512) as handle:
        assert handle.extension.frequencies_or_rope.factor == 2
    with pytest.raises(DoesNotFit, match="above the trained length \\(256\\)"):
        extend(model, "yarn+instead", target_len=256)
    with pytest.raises(DoesNotFit, match="above the trained length \\(1024\\)"):
        extend(model, "yarn", target_len=512)


def test_a_corrected_length_says_where_a_linear_checkpoint_came_from():
    config = AutoConfig.for_model("llama", rope_scaling={"type": "linear", "factor": 4.0}, max_position_embeddings=4096)
    assert lengths_of(config) == (4096, 1024)
    assert lengths_of(config, corrected=16_384) == (16_384, 4096)


def test_the_layout_of_a_model_is_no_schedule():
    seen = inspect(small("gemma-4"))
    assert not seen.own_schedule
    assert "pairs do not rotate" not in str(inspect(tiny("llama")))
    assert "pairs do not rotate" in str(seen)


def test_a_base_that_is_the_models_own_is_refused():
    with pytest.raises(DoesNotFit, match="new_base must be another than the model's own base"):
        extend(small("Llama-3.1-8B"), "abf")
