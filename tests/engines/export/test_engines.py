"""Each engine, by its own rule, computes from the config what the extension is: any schedule, temperature and length.

The rules are in engine_rules.py. What the engines themselves compute from such exports is measured in studies/log.md.
"""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as some

import ropewalk as rw
from ropewalk import DoesNotFit
from ropewalk.engines.rules.statement import state_extension
from ropewalk.engines.targets import TARGETS
from ropewalk.extension.static import constant_scale, static_table
from ropewalk.hf.attach.extend import attach_layers
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.probe import probe

from hf import engine_rules
from hf.models import tiny

TRAINED = 512


def shaped(**schedule):
    """A model that came with this schedule, and its layer."""
    own = {"rope_theta": 10_000.0, "original_max_position_embeddings": TRAINED // 2, **schedule}
    given = {"rope_parameters": own} if schedule else {}
    model = tiny("llama", num_hidden_layers=1, head_dim=32, max_position_embeddings=TRAINED, **given)
    layers = probe(model)
    return model, layers, [facts_of(model, layer, 1) for layer in layers]


MODELS = {
    "plain": shaped(),
    "llama3": shaped(rope_type="llama3", factor=2.0, low_freq_factor=1.0, high_freq_factor=4.0),
    "yarn": shaped(rope_type="yarn", factor=2.0),
}

factors = some.floats(1.05, 40).map(lambda value: round(value, 3))
by_parts = some.builds(
    "frequencies.by_parts:factor={},low_turns={},high_turns={},truncate={},ramp={}".format,
    factors,
    some.sampled_from([1, 1, 0.5, 2]),
    some.sampled_from([32, 32, 8, 64]),
    some.sampled_from(["true", "false"]),
    some.sampled_from(["index", "index", "turns"]),
)
named = some.builds(
    "{}:factor={}".format, some.sampled_from(["yarn", "pi", "ntk", "frequencies.ntk_mixed", "llama3"]), factors
)
temperatures = some.sampled_from(["", "", "+scales.temperature:value=1.3", "+scales.yarn_temperature:factor=8"])
plain = some.builds("{}{}".format, by_parts, temperatures) | named
came_with = some.sampled_from(list(MODELS))
multiples = some.floats(1.1, 48)


def unless_refused(answer):
    """An answer, or the reason why there is none raised."""
    if isinstance(answer, DoesNotFit):
        raise answer
    return answer


def read(text, target, multiple, own="plain"):
    """What is wanted, and the config and the answer that the engine gets; or a refusal."""
    model, layers, facts = MODELS[own]
    extension, length = rw.parse(text, trained_len=TRAINED, layers=1), int(TRAINED * multiple)
    said = unless_refused(state_extension(model, extension, attach_layers(layers, facts, extension), length))
    reading = unless_refused(TARGETS[target].rewrite(said))
    scale = math.prod(constant_scale(extension, facts[0])) * layers[0].temperature ** 2  # the model's own stays
    return (static_table(extension, facts[0]), scale), said, reading, said.config.to_dict()


def require_equal(computed, reading, wanted):
    table, scale = wanted
    torch.testing.assert_close(computed.table, table, rtol=2e-6, atol=0)  # divisors are written in float64 or float32
    assert computed.temperature**2 * reading.folded == pytest.approx(scale, rel=1e-6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(plain, multiples, came_with)
def test_vllm(text, multiple, own):
    wanted, said, reading, config = read(text, "vllm", multiple, own)
    computed, allowed = engine_rules.vllm(config)
    require_equal(computed, reading, wanted)
    asked = int(TARGETS["vllm"].command("place", said).split("--max-model-len ")[1])
    assert asked == int(TRAINED * multiple)
    assert asked <= allowed  # or vLLM refuses its own command
    assert asked <= math.floor(computed.rows + 1e-6)  # or it reads beyond its table


@settings(max_examples=100, deadline=None, derandomize=True)
@given(plain, multiples, came_with)
def test_sglang(text, multiple, own):
    wanted, _, reading, config = read(text, "sglang", multiple, own)
    computed = engine_rules.sglang(config)
    require_equal(computed, reading, wanted)
    assert computed.rows >= int(TRAINED * multiple)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(plain, multiples, came_with)
def test_llama_cpp(text, multiple, own):
    wanted, said, reading, config = read(text, "llama.cpp", multiple, own)
    divisors = said.divisors if reading.divisors else None
    require_equal(engine_rules.llama_cpp({**config, **reading.written}, divisors), reading, wanted)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(plain, multiples, came_with)
def test_mlx(text, multiple, own):
    wanted, _, reading, config = read(text, "mlx", multiple, own)
    require_equal(engine_rules.mlx({**config, **reading.written}), reading, wanted)


def test_llama_cpp_has_one_yarn():
    """Betas 32 and 1, truncated, at 0.1 ln f + 1: by name. Anything else is not what it would compute."""
    own = "frequencies.by_parts:factor=8{}+scales.yarn_temperature:factor={}"
    said = {
        text: read(text, "llama.cpp", 8)[2].lowered
        for text in (
            "yarn:factor=8",
            "by_parts:factor=8",
            own.format(",truncate=false", 8),
            own.format(",low_turns=2", 8),
            own.format(",high_turns=16", 8),
            own.format("", 4),
        )
    }
    assert list(said.values()) == [False, True, True, True, True, True]


def stated(text, name, **config):
    """What an export of a small model says of an extension, and the constant temperature that this has."""
    model = tiny(name, num_hidden_layers=1, **config)
    layers = probe(model)
    facts = [facts_of(model, layer, 1) for layer in layers]
    extension = rw.parse(text, trained_len=32, layers=1)
    said = state_extension(model, extension, attach_layers(layers, facts, extension), None)
    return said, math.prod(constant_scale(extension, facts[0]))


@pytest.mark.parametrize("name", ["qwen3", "olmo2", "granite"])
@pytest.mark.parametrize("text", ["by_parts:factor=4,low_turns=2", "llama3:factor=4"])
def test_llama_cpp_reads_divisors_in_some_architectures_only(name, text):
    said, _ = stated(text, name)
    assert f"what llama.cpp knows of {name}" in str(TARGETS["llama.cpp"].rewrite(said))


@pytest.mark.parametrize("name", ["qwen3", "olmo2", "granite", "gemma3_text"])
@pytest.mark.parametrize("text", ["by_parts:factor=4", "yarn:factor=4+scales.temperature:value=1.3"])
def test_llama_cpp_has_its_own_temperature_and_the_rest_is_folded(name, text):
    """YaRN's table is known by name wherever divisors are not read; the config keeps what llama.cpp computes."""
    said, scale = stated(text, name, layer_types=["full_attention"])
    reading = TARGETS["llama.cpp"].rewrite(said)
    left = said.parameters[0]
    computed = 0.1 * math.log(4) + 1
    assert (left["rope_type"], left.get("attn_factor")) == ("yarn", None)
    assert left["attention_factor"] == pytest.approx(computed)
    assert computed**2 * reading.folded == pytest.approx(scale)


@pytest.mark.parametrize("name", ["gemma", "stablelm", "phi3", "gpt_neox"])
@pytest.mark.parametrize("text", ["pi:factor=4", "ntk:factor=4"])
def test_llama_cpp_drops_the_schedules_of_some_architectures(name, text):
    """Even another base: their converters write keys of their own. StableLM was off by 17 in log-probabilities."""
    said, _ = stated(text, name)
    refused = TARGETS["llama.cpp"].rewrite(said)
    assert isinstance(refused, DoesNotFit)
    assert f"of {name}" in str(refused)


def latent(**own):
    """A model whose keys come from a latent vector, with this YaRN in its config."""
    said, _ = stated("by_parts:factor=4", "deepseek_v3")
    said.text.rope_parameters |= own
    return said


@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_latent_attention_has_the_temperature_of_mscale(target):
    """0.1 ln 4 + 1 where nothing is stated, 1 where both are alike, as DeepSeek V3 has them."""
    assert "must be 1.1386" in str(TARGETS[target].rewrite(latent()))
    said = latent(mscale=1.0, mscale_all_dim=1.0)
    TARGETS[target].rewrite(said)
    assert not {"attention_factor", "attn_factor"} & set(
        said.text.rope_parameters
    )  # 1 makes vLLM forget mscale_all_dim
    refused = TARGETS[target].rewrite(latent(truncate=False, mscale=1.0, mscale_all_dim=1.0))
    assert isinstance(refused, DoesNotFit)
    assert "where keys are latent" in str(refused)
