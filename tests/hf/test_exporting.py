"""What engines are given says what the model does, as far as transformers can read it back; the rest is refused."""

import json

import pytest
import torch
from hf.models import tiny
from hf.traces import logits, trace
from transformers import AutoModelForCausalLM

from ropewalk import DoesNotFit, InvalidValue, UnknownName
from ropewalk.hf import export, extended

IDS = torch.randint(3, 97, (2, 100), generator=torch.Generator().manual_seed(5))
LOWERED = "frequencies.ntk_mixed:factor=4+scales.temperature:value=1.3"


def exported(model, directory, text, **given):
    with extended(model, text):
        result, expected = export(model, directory, **given), logits(model, IDS)
    config = json.loads((directory / "config.json").read_text())
    return result, expected, config


@pytest.mark.parametrize("target", ["transformers", "vllm", "sglang", "llama.cpp"])
def test_yarn_is_native_everywhere(tmp_path, target):
    result, expected, config = exported(tiny("llama"), tmp_path / "out", "yarn:factor=4", target=target)
    assert result.kind == "native"
    assert str(tmp_path / "out") in result.command
    said = config["rope_parameters"]
    assert (said["rope_type"], said["factor"], said["original_max_position_embeddings"]) == ("yarn", 4.0, 32)
    assert said["attn_factor"] == pytest.approx(1.0)  # over 0.1 ln 4 + 1, which engines multiply by themselves
    assert config["max_position_embeddings"] == 128
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(again, IDS), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3_text"])
def test_a_temperature_is_folded_into_what_makes_the_queries(tmp_path, name):
    """qwen2 has biases, qwen3 a norm, gemma3 a norm that adds one to its weight and leaves windows alone."""
    model = tiny(name, num_hidden_layers=6)
    before = trace(model)
    result, expected, config = exported(model, tmp_path / "out", LOWERED, target="vllm", target_len=128)
    assert result.kind == "lowered"
    assert "folded" in str(result)
    said = config["rope_parameters"]
    assert said.get("full_attention", said)["attention_factor"] == 1.0
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(again, IDS), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))
    assert trace(model) == before


def test_a_dynamic_schedule_is_frozen_and_said_to_be(tmp_path):
    model = tiny("llama", num_hidden_layers=2)
    given = {"target": "sglang", "target_len": 128}
    result, _, config = exported(model, tmp_path / "out", "dynamic_yarn", **given)
    assert result.kind == "frozen"
    assert "made static for 128" in str(result)
    assert config["rope_parameters"]["factor"] == 4.0
    with extended(model, "yarn:factor=4"):
        expected = logits(model, IDS)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(again, IDS), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


def test_vllm_multiplies_a_linear_length_by_itself(tmp_path):
    result, _, config = exported(tiny("llama"), tmp_path / "out", "pi:factor=4", target="vllm")
    assert config["max_position_embeddings"] == 32
    assert result.command.endswith("--max-model-len 128")


def test_the_flags_of_llama_cpp(tmp_path):
    result, *_ = exported(tiny("llama"), tmp_path / "out", "yarn:factor=4", target="llama.cpp")
    assert result.command.endswith("-c 128 --rope-scaling yarn --rope-scale 4.0 --yarn-orig-ctx 32")


@pytest.mark.parametrize(
    ("text", "target", "match"),
    [
        ("rerope:window=8", "vllm", "reach"),
        ("biases.alibi", "vllm", "biases"),
        ("yarn:factor=4+log_n", "sglang", "log_n"),
        (LOWERED, "llama.cpp", "converter"),
        ("dynamic_yarn", "vllm", "target_len"),
    ],
)
def test_refusals_name_the_reason(tmp_path, text, target, match):
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, text), pytest.raises(DoesNotFit, match=match):
        export(model, tmp_path / "out", target=target)
    assert list(tmp_path.iterdir()) == []


def test_bad_input(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    with pytest.raises(InvalidValue, match="extend it first"):
        export(model, tmp_path / "out", target="vllm")
    with pytest.raises(UnknownName, match=r"llama\.cpp"):
        export(model, tmp_path / "out", target="olama")
