"""What engines are given says what the model does, as far as transformers can read it back; the rest is refused."""

import json
import shlex
from pathlib import Path

import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, UnknownName, extended
from ropewalk.engines.export import export
from ropewalk.engines.fold import fold_into_weights, why_not_foldable
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.use.save import save_weights

from hf.models import tiny
from hf.traces import logits, trace

IDS = torch.randint(3, 97, (2, 100), generator=torch.Generator().manual_seed(5))
FACTS = rw.Facts(trained_len=32, head_dim=16)
UNSTRETCHED = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}
LOWERED = "frequencies.ntk_mixed:factor=4+scales.temperature:value=1.3"


def exported(model, directory, text, **given):
    with extended(model, text):
        result, expected = export(model, directory, **given), logits(model, IDS)
    return result, expected, json.loads((directory / "config.json").read_text())


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("target", ["transformers", "vllm", "sglang", "llama.cpp"])
def test_yarn_is_native_everywhere(tmp_path, target):
    result, expected, config = exported(tiny("llama"), tmp_path / "out", "yarn:factor=4", target=target)
    assert result.kind == "native"
    assert str(tmp_path / "out") in result.command
    said = config["rope_parameters"]
    assert (said["rope_type"], said["factor"], said["original_max_position_embeddings"]) == ("yarn", 4.0, 32)
    assert "attn_factor" not in said  # 0.1 ln 4 + 1 is what engines compute, and transformers warns of the key
    assert config["max_position_embeddings"] == 128
    require_reloaded(tmp_path / "out", expected)


def test_an_export_is_not_stretched_again(tmp_path):
    exported(tiny("llama"), tmp_path / "out", "yarn:factor=4", target="vllm")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    said = r"stretched by yarn already, from 32 to 128 tokens; take the model that it was made of"
    with extended(model, "yarn:factor=2"), pytest.raises(DoesNotFit, match=said):
        export(model, tmp_path / "again", target="vllm")
    with extended(model, "yarn:factor=2", trained_len=128):  # which says that it was trained on more since
        export(model, tmp_path / "again", target="vllm")


def require_reloaded(directory, expected):
    files = {"gguf_file": "model.gguf"} if (directory / "model.gguf").exists() else {}
    again = AutoModelForCausalLM.from_pretrained(directory, config=AutoConfig.from_pretrained(directory), **files)
    torch.testing.assert_close(logits(again, IDS), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("target", ["vllm", "sglang"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma3_text", "phi3"])
def test_a_temperature_stands_where_engines_look_for_it(tmp_path, name, target):
    """Beside the divisors under every name it has, so that no weight is touched."""
    model = tiny(name, num_hidden_layers=6)
    result, expected, config = exported(model, tmp_path / "out", LOWERED, target=target, target_len=128)
    assert result.kind == "lowered"
    assert "folded" not in str(result)
    said = config["rope_parameters"]
    said = said.get("full_attention", said)
    for key in ("attention_factor", "short_mscale", "long_mscale"):
        assert said[key] ** 2 == pytest.approx(1.3)
    require_reloaded(tmp_path / "out", expected)


@pytest.mark.parametrize("text", [LOWERED, "yarn:factor=4,over=head"])
def test_a_temperature_that_cos_and_sin_do_not_carry_everywhere_is_folded(tmp_path, text):
    """Every other layer of this model turns nothing, and bears the temperature all the same."""
    model = tiny("smollm3", num_hidden_layers=2, no_rope_layers=[1, 0])
    before = trace(model)
    result, expected, config = exported(model, tmp_path / "out", text, target="vllm", target_len=128)
    assert result.kind == "lowered"
    assert "is folded into the weights of the queries" in str(result)
    assert config["rope_parameters"]["attention_factor"] == 1.0
    require_reloaded(tmp_path / "out", expected)
    assert trace(model) == before


@pytest.mark.parametrize("name", ["llama", "mistral", "apertus"])
def test_llama_cpp_finds_divisors_among_the_weights(tmp_path, name):
    """Any table, its temperature in the queries; transformers is stopped, for it would miss the divisors."""
    model = tiny(name, num_hidden_layers=1, sliding_window=None, **UNSTRETCHED)
    before = dict(model.state_dict())
    result, _, config = exported(model, tmp_path / "out", LOWERED, target="llama.cpp", target_len=128)
    assert result.kind == "lowered"
    assert "a temperature of 1.3000 is folded" in str(result)
    wanted = 10_000 ** (-torch.arange(8) / 8) / rw.parse(LOWERED).frequencies_or_rope.table(FACTS, 1).inv_freq
    torch.testing.assert_close(divisors_in(tmp_path / "out"), wanted.float(), rtol=1e-6, atol=0)
    if name == "apertus":  # the others' weights are in the GGUF file
        written = load_file(tmp_path / "out" / "model.safetensors")
        assert written.pop("rope.freqs.weight").dtype == torch.float32
        changed = [key for key, value in written.items() if not torch.equal(value, before[key])]
        assert changed == ["model.layers.0.self_attn.q_norm.weight"]
    assert config["rope_parameters"]["rope_type"] == "rope_freqs"
    with pytest.raises((KeyError, OSError), match=r"rope_freqs|no file named model\.safetensors"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    (layer,) = rw.check(tmp_path / "out", engine="llama.cpp").layers
    torch.testing.assert_close(
        layer.engine.inv_freq.float(), rw.parse(LOWERED).frequencies_or_rope.table(FACTS, 1).inv_freq.float()
    )


def divisors_in(folder):
    """Over the base of the config; in a GGUF file they are over the base 1."""
    if (folder / "model.gguf").exists():
        tensors = {tensor.name: tensor.data for tensor in GGUFReader(folder / "model.gguf").tensors}
        return torch.from_numpy(tensors["rope_freqs.weight"].copy()) * 10_000 ** (-torch.arange(8) / 8)
    return load_file(folder / "model.safetensors")["rope.freqs.weight"]


def test_queries_that_nothing_known_makes_bear_no_temperature():
    """Its queries, keys and values come from one matrix, head by head."""
    model = tiny("gpt_neox", num_hidden_layers=1)
    with extended(model, "pi:factor=4") as handle:
        assert "q_proj" in str(why_not_foldable(handle.layers))


def test_queries_of_one_matrix_for_all_are_its_first_rows():
    with extended(tiny("phi3", num_hidden_layers=1), "pi:factor=4") as handle:
        state, before = fold_into_weights(handle.model, handle.layers, 2.0, whole=True), handle.model.state_dict()
    key = "model.layers.0.self_attn.qkv_proj.weight"
    torch.testing.assert_close(state[key][:64], 2 * before[key][:64], rtol=0, atol=0)
    torch.testing.assert_close(state[key][64:], before[key][64:], rtol=0, atol=0)


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("name", ["glm", "phi", "stablelm", "qwen3_next"])
def test_a_temperature_of_the_rotation_is_folded_into_what_rotates(name):
    """With the folded weights the model computes what cos and sin would, where only some dimensions rotate."""
    model, factor = tiny(name), 1.5
    with extended(model, f"temperature:value={factor},over=rotating") as handle:
        expected = logits(model, IDS)
        state = fold_into_weights(handle.model, handle.layers, factor, whole=False)
    twin = type(model)(model.config).eval()
    twin.load_state_dict(state)
    torch.testing.assert_close(logits(twin, IDS), expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


def test_folding_in_half_precision_is_said_to_round(tmp_path):
    model = tiny("llama", num_hidden_layers=1).bfloat16()
    result, *_ = exported(model, tmp_path / "out", LOWERED, target="llama.cpp", target_len=128)
    assert "rounded to bfloat16" in str(result)
    assert divisors_in(tmp_path / "out").dtype == torch.float32


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral", "phi3"])
@pytest.mark.parametrize("target", ["vllm", "transformers"])
def test_a_window_stands_in_the_config(tmp_path, name, target):
    model = tiny(name, num_hidden_layers=2, sliding_window=None)
    text = "window:window=16+yarn:factor=4"
    result, expected, config = exported(model, tmp_path / "out", text, target=target)
    assert config["sliding_window"] == 16
    assert config["model_type"] == ("mistral" if name == "llama" else name)
    assert set(config.get("layer_types") or ["sliding_attention"]) == {"sliding_attention"}
    assert ("written as mistral" in str(result)) == (name == "llama")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert [layer.window for layer in probe(again)] == [16, 16]
    require_reloaded(tmp_path / "out", expected)


@pytest.mark.parametrize("text", ["yarn:factor=4", "pi:factor=4", "llama3:factor=4"])
def test_a_config_that_knows_one_name_gets_divisors(tmp_path, text):
    """Phi-3's knows longrope alone."""
    result, expected, config = exported(
        tiny("phi3", num_hidden_layers=1), tmp_path / "out", text, target="transformers"
    )
    assert result.kind == "lowered"
    assert config["rope_parameters"]["rope_type"] == "longrope"
    require_reloaded(tmp_path / "out", expected)


def test_what_a_model_needs_to_be_known_by_is_written(tmp_path):
    """A model that was made here has no architectures in its config, which engines choose by."""
    _, _, config = exported(
        tiny("llama", num_hidden_layers=1).bfloat16(), tmp_path / "out", "pi:factor=4", target="vllm"
    )
    assert (config["architectures"], config["dtype"]) == (["LlamaForCausalLM"], "bfloat16")


def test_licence_and_card_come_along(tmp_path):
    tiny("llama", num_hidden_layers=1).save_pretrained(tmp_path / "own")
    for name in ("LICENSE", "README.md", "Notice.txt", "figures.png"):
        (tmp_path / "own" / name).write_text(name)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "own")
    result, *_ = exported(model, tmp_path / "out", "pi:factor=4", target="vllm")
    there = {each.name for each in (tmp_path / "out").iterdir()}
    assert there >= {"LICENSE", "README.md", "Notice.txt"}
    assert "figures.png" not in there
    assert (tmp_path / "out" / "LICENSE").read_text() == "LICENSE"
    assert "LICENSE, Notice.txt, README.md" in str(result)


def test_a_tokenizer_of_its_own_is_unknown_to_llama_cpp(tmp_path):
    """Its converter knows tokenizers by the tokens of one text. The line it needs is said."""
    tokenizer = AutoTokenizer.from_pretrained(Path(rw.__file__).parent / "models" / "default")
    with extended(tiny("mixtral", num_hidden_layers=1, sliding_window=None), "pi:factor=4") as handle:
        given = {"target": "llama.cpp", "tokenizer": tokenizer}
        result = export(handle.model, tmp_path / "out", **given)
    line = 'if chkhsh == "1830e9d0ce6b7c76e0d4851545d649193eefa0792335846982ae475069d71c57": res = "smollm"'
    assert line in str(result)


def test_what_was_never_run_is_said(tmp_path):
    for name, said in (("qwen3", False), ("cohere", True)):
        result, *_ = exported(tiny(name, num_hidden_layers=1), tmp_path / name, "pi:factor=4", target="llama.cpp")
        assert ("never run" in str(result)) == said


def test_a_folder_with_spaces_is_quoted(tmp_path):
    place = tmp_path / "my model"
    result, *_ = exported(tiny("llama", num_hidden_layers=1), place, "pi:factor=4", target="llama.cpp")
    words = shlex.split(result.command)
    assert f"{place}/model.gguf" in words
    result, *_ = exported(tiny("cohere", num_hidden_layers=1), tmp_path / "a b", "pi:factor=4", target="llama.cpp")
    words = shlex.split(result.command)
    assert str(tmp_path / "a b") in words
    assert f"{tmp_path / 'a b'}.gguf" in words


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


@pytest.mark.parametrize("text", ["yarn:factor=4", "dynamic_yarn"])
def test_what_does_not_come_back_the_same_is_not_exported(tmp_path, monkeypatch, text):
    """What was written is compared with the model's weights, also under a static schedule in place of a dynamic one."""

    def spoiled(host, place, _):
        save_weights(host, place, {name: -x if "q_proj" in name else x for name, x in host.state_dict().items()})

    monkeypatch.setattr("ropewalk.engines.export.save_weights", spoiled)
    with pytest.raises(DoesNotFit, match="the same when loaded"):
        exported(tiny("llama", num_hidden_layers=2), tmp_path / "out", text, target="sglang", target_len=128)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("target", ["transformers", "vllm", "sglang", "llama.cpp"])
@pytest.mark.parametrize(
    "text", ["yarn:factor=4+resonance", "yarn:factor=4+cope:clip=hard+resonance", "p_rope:share=0.5"]
)
def test_a_wrapped_schedule_is_a_table(tmp_path, text, target):
    """One divisor for each pair; a pair that stands still has one that stops it, and none is left out."""
    model = tiny("llama", num_hidden_layers=2, **UNSTRETCHED)
    result, expected, config = exported(model, tmp_path / "out", text, target=target, target_len=128)
    assert result.kind == "lowered"
    wanted = rw.parse(text).frequencies_or_rope.table(FACTS, 1).inv_freq
    if target == "llama.cpp":
        divisors = divisors_in(tmp_path / "out").double()
    else:
        divisors = torch.tensor(config["rope_parameters"]["long_factor"], dtype=torch.float64)
        require_reloaded(tmp_path / "out", expected)
    written = 10_000 ** (-torch.arange(8, dtype=torch.float64) / 8) / divisors
    torch.testing.assert_close(written, wanted, rtol=1e-6, atol=1e-19)


@pytest.mark.parametrize(
    ("text", "static"),
    [
        ("dynamic_yarn+resonance", "yarn:factor=4+resonance"),
        ("dynamic_ntk+cope+p_rope:share=0.5", "frequencies.ntk:factor=4+cope+p_rope:share=0.5"),
    ],
)
def test_a_dynamic_schedule_is_frozen_in_its_wrappers(tmp_path, text, static):
    model = tiny("llama", num_hidden_layers=2)
    result, *_ = exported(model, tmp_path / "out", text, target="sglang", target_len=128)
    assert result.kind == "frozen"
    assert f"made static for 128 tokens, as {rw.parse(static).frequencies}" in str(result)
    with extended(model, static):
        require_reloaded(tmp_path / "out", logits(model, IDS))


@pytest.mark.parametrize(("to", "said"), [(None, 32), (256, 64), (96, 24), (130, 33)])
def test_vllm_multiplies_a_linear_length_by_itself(tmp_path, to, said):
    model = tiny("llama", num_hidden_layers=1)
    result, _, config = exported(model, tmp_path / "out", "pi:factor=4", target="vllm", target_len=to)
    assert config["max_position_embeddings"] == said
    assert result.command.endswith(f"--max-model-len {to or 128}")


def test_vllm_takes_gemma3_at_its_word(tmp_path):
    model = tiny("gemma3_text", num_hidden_layers=6)
    result, _, config = exported(model, tmp_path / "out", "pi:factor=4", target="vllm")
    assert config["max_position_embeddings"] == 128
    assert result.command.endswith("--max-model-len 128")


def test_vllm_has_no_table_beyond_the_factor(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    result, expected, config = exported(model, tmp_path / "out", "yarn:factor=4", target="vllm", target_len=256)
    assert result.kind == "lowered"
    assert config["rope_parameters"]["rope_type"] == "longrope"
    assert config["max_position_embeddings"] == 256
    require_reloaded(tmp_path / "out", expected)


def test_llama_cpp_needs_no_flags_for_the_schedule(tmp_path):
    """The file holds the schedule; the command is a user's, in every precision."""
    for name, model in (("out", tiny("llama")), ("half", tiny("llama").bfloat16())):
        result, *_ = exported(model, tmp_path / name, "yarn:factor=4", target="llama.cpp")
        assert result.kind == "native" or name == "half"
        assert result.command == f"llama-server -m {tmp_path / name}/model.gguf -c 128"


@pytest.mark.parametrize(
    ("text", "target", "match"),
    [
        ("rerope:window=8", "sglang", "reach"),
        ("biases.alibi", "sglang", "biases"),
        ("yarn:factor=4+log_n", "sglang", "log_n"),
        ("window:window=8+yarn:factor=4", "llama.cpp", "window"),
        ("rerope:window=8", "llama.cpp", "reach"),
        ("string:shift=8,local=2", "sglang", "string"),
        ("self_logistic:window=8,capacity=5,rate=0.3", "sglang", "self_logistic"),
        ("lampe:head=6,tail=3,length=60,mapped=20", "sglang", "lampe"),
        ("lampe:head=6,tail=3,length=60,mapped=20", "llama.cpp", "lampe"),
        ("string:shift=8,local=2+yarn:factor=4", "llama.cpp", "string"),
        ("llama4_temperature", "sglang", "llama4_temperature"),
        ("ministral3:factor=4", "llama.cpp", "llama4_temperature"),
        ("ssmax", "sglang", "ssmax"),
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
