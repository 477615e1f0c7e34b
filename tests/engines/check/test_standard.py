"""What a config says, against transformers' own functions and against models that were probed."""

import copy

import pytest
import torch
from hypothesis import given, settings, strategies as some
from transformers import AutoConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropewalk.engines.check.reading import read_checkpoint
from ropewalk.engines.check.versions import installed_version, is_installed, own_rotation
from ropewalk.engines.rules.rotation import Asked
from ropewalk.engines.rules.standard import standard_rotation, why_not_known
from ropewalk.engines.targets import ENGINES
from ropewalk.hf.probe.probe import probe

from hf.models import tiny
from hf.released import CONFIGS, small

SINGLE = 3e-6  # relative: tables in float32
factors, bases = some.floats(1.0, 64).map(lambda value: round(value, 3)), some.sampled_from([1e4, 5e5, 1e6])
divisors = some.lists(some.floats(0.5, 40), min_size=16, max_size=16)
kinds = {
    "linear": some.fixed_dictionaries({"factor": factors}),
    "dynamic": some.fixed_dictionaries({"factor": factors}),
    "yarn": some.fixed_dictionaries(
        {"factor": factors, "original_max_position_embeddings": some.sampled_from([512, 4096])},
        optional={
            "attention_factor": some.floats(0.5, 2),
            "beta_fast": some.sampled_from([8.0, 32.0, 64.0]),
            "beta_slow": some.sampled_from([0.5, 1.0, 2.0]),
            "truncate": some.booleans(),
            "mscale": some.sampled_from([0.7, 1.0]),
            "mscale_all_dim": some.sampled_from([0.0, 0.8, 1.0]),
        },
    ),
    "longrope": some.fixed_dictionaries(
        {"short_factor": divisors, "long_factor": divisors, "original_max_position_embeddings": some.just(512)},
        optional={"factor": factors, "attention_factor": some.floats(0.5, 2)},
    ),
    "llama3": some.fixed_dictionaries(
        {
            "factor": factors,
            "original_max_position_embeddings": some.sampled_from([512, 4096]),
            "low_freq_factor": some.just(1.0),
            "high_freq_factor": some.sampled_from([2.0, 4.0]),
        }
    ),
}
parts = some.sampled_from(sorted(kinds)).flatmap(lambda kind: kinds[kind].map(lambda part: {"rope_type": kind, **part}))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(parts, bases, some.sampled_from([600, 4096]), some.sampled_from([100, 600, 5000]), some.sampled_from([1.0, 0.5]))
def test_every_type_is_what_transformers_computes(part, base, longest, text, share):
    if share != 1.0 and part["rope_type"] == "longrope":
        share = 1.0
    rope = {**copy.deepcopy(part), "rope_theta": base, "partial_rotary_factor": share}
    config = LlamaConfig(head_dim=32, max_position_embeddings=longest, rope_parameters=rope)
    table, temperature = ROPE_INIT_FUNCTIONS[part["rope_type"]](config, None, seq_len=text)
    ours = standard_rotation(read_checkpoint(config).rope, "", text)
    torch.testing.assert_close(table.double(), ours.inv_freq, rtol=SINGLE, atol=0)
    assert ours.temperature == pytest.approx(temperature, rel=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_released_configs_are_what_their_models_compute(name):
    """Small models with the settings as released, probed: tables of all layers, their temperature, their logits."""
    model = small(name)
    rope = read_checkpoint(model.config).rope
    plain = tiny(CONFIGS[name][0], num_hidden_layers=1) if CONFIGS[name][0] == "deepseek_v3" else None
    for layer in probe(model):
        if layer.rotating:
            part = (layer.layer_type or "") if len(rope.parts) > 1 else next(iter(rope.parts))
            ours = standard_rotation(rope, part, 1)
            torch.testing.assert_close(torch.tensor(layer.inv_freq).double(), ours.inv_freq, rtol=2e-5, atol=1e-9)
            assert layer.temperature == pytest.approx(ours.temperature, rel=1e-5)
            if plain is not None:
                own = layer.module.scaling / probe(plain)[0].module.scaling
                assert own == pytest.approx(ours.logits, rel=1e-6)


@pytest.mark.parametrize("name", list(CONFIGS))
def test_the_installed_transformers_is_asked_itself(name):
    """Its own functions give what the formula gives, for full-sized released configs."""
    kind, released, *_ = CONFIGS[name]
    config = AutoConfig.for_model(kind, **copy.deepcopy(released))
    rope = read_checkpoint(config).rope
    for part in rope.parts:
        asked = Asked((5, 23), rope.max_len, rope.max_len)
        formula = ENGINES["transformers"].rotation(rope, part, asked)
        own = own_rotation("transformers", formula, rope, part, asked, config)
        if rope.kind(part) == "default":
            assert own is None
            continue
        ours = standard_rotation(rope, part, rope.max_len)
        torch.testing.assert_close(own.inv_freq, ours.inv_freq, rtol=SINGLE, atol=0)
        assert own.temperature == pytest.approx(ours.temperature, rel=1e-6)


def test_which_version_is_installed():
    assert is_installed((5, 23), "5.23.0")
    assert not is_installed((5, 22), "5.23.0")
    assert is_installed((0, 32, 0), "0.32.0+cpu")
    assert installed_version("transformers").startswith("5.")
    assert installed_version("sglang") == ""


def test_a_type_that_nobody_knows():
    config = LlamaConfig(rope_parameters={"rope_type": "ntk", "rope_theta": 10_000.0, "factor": 2.0})
    assert "'ntk'" in why_not_known(read_checkpoint(config).rope, "").sentence
