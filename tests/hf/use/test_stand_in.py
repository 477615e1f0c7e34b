"""A config says of attention what the model with its weights says."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

import ropewalk as rw
from ropewalk import DoesNotFit, RopewalkError, inspect
from ropewalk.hf.use import stand_in as of_configs
from ropewalk.hf.use.stand_in import stand_in

from hf.architectures import NAMES, small
from hf.models import OWN, tiny
from nightly import first_of_each

PAGE = Path(__file__).parents[3] / "docs/models.md"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_70B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 8192},
    "vocab_size": 128256,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008],
    "torch_dtype": "bfloat16",
}


def said_of(model):
    try:
        return str(inspect(model))
    except RopewalkError as refused:
        return str(refused)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", [name for name in OWN if name != "ministral3"])
def test_it_says_what_the_model_says(name):
    model = tiny(name, vocab_size=3000, intermediate_size=112, eos_token_id=2999, pad_token_id=512)
    made = stand_in(model.config)
    assert said_of(made) == said_of(model)
    assert made.num_parameters() < model.num_parameters() / 2


@pytest.mark.parametrize("name", first_of_each(NAMES, lambda _: None))
def test_of_every_architecture(name):
    """A few cannot be made small: of those the weights are asked for."""
    try:
        model = small(name)
    except (ImportError, ValueError) as unmade:  # transformers does not build it, which the page says
        assert f"| {name} | not made |" in PAGE.read_text()
        pytest.skip(str(unmade))
    try:
        made = stand_in(model.config)
    except DoesNotFit:
        made = model
    assert said_of(made) == said_of(model)


def test_heads_that_are_shares_of_the_width_keep_it():
    """GPT-NeoX has no size of its heads in its config: a narrow one would have others."""
    config = tiny("gpt_neox", vocab_size=3000, intermediate_size=112).config
    made = stand_in(config)
    assert made.config.hidden_size == config.hidden_size
    assert made.config.intermediate_size == of_configs.FEATURES


def test_states_beside_attention_keep_their_size():
    """The states of convolutions are channels of the whole width."""
    model = small("lfm2")
    assert inspect(stand_in(model.config)).cache_bytes() == inspect(model).cache_bytes()


@pytest.mark.nightly
def test_a_config_of_70_billion_parameters(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B))
    seen = rw.inspect(tmp_path / "config.json", target_len=1_048_576)
    assert (seen.facts.trained_len, seen.facts.heads, seen.facts.groups) == (131072, 64, 8)
    assert (len(seen.layers), seen.facts.head_dim, seen.facts.base) == (80, 128, 500000)
    assert seen.own_schedule.startswith("llama3, factor 8")
    assert seen.cache_bytes() == 80 * 2 * 8 * 128 * 1_048_576 * 2
    assert "rerope" in seen.applying
    made = stand_in(AutoConfig.from_pretrained(tmp_path))
    assert made.num_parameters() < 150_000_000
    assert made.dtype == torch.bfloat16


def test_a_config_and_its_folder_are_the_same(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B | {"num_hidden_layers": 1}))
    assert str(rw.inspect(tmp_path)) == str(rw.inspect(str(tmp_path / "config.json")))


def test_what_cannot_be_made_small_says_so(monkeypatch):
    monkeypatch.setattr(of_configs, "MOST_WEIGHTS", 1000)
    with pytest.raises(DoesNotFit, match=r"a model of type llama cannot be made small enough.*pass the folder"):
        stand_in(tiny("llama").config)


def test_then_the_weights_are_loaded(monkeypatch, tmp_path):
    tiny("llama", num_hidden_layers=1).save_pretrained(tmp_path)
    expected = str(rw.inspect(tmp_path))
    monkeypatch.setattr(of_configs, "MOST_WEIGHTS", 1000)
    assert str(rw.inspect(tmp_path)) == expected


def test_an_extension_beside_the_weights_counts(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    with rw.extended(model, "yarn:factor=4"):
        rw.save(model, tmp_path / "long")
    assert str(rw.inspect(tmp_path / "long")) == str(rw.inspect(rw.load(tmp_path / "long")))


def test_the_callers_random_numbers_are_kept():
    config = tiny("llama").config
    before = torch.get_rng_state()
    stand_in(config)
    assert torch.equal(torch.get_rng_state(), before)
