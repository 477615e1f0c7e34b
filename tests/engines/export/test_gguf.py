"""What the GGUF file says, read back by the package `gguf`. llama.cpp itself reads them in tests/real_engines."""

import json
import sys
from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import ropewalk as rw
from ropewalk import DoesNotFit, extended
from ropewalk.engines.export import export
from ropewalk.engines.llama_cpp.architectures import ARCHITECTURES
from ropewalk.errors import NotInstalled
from ropewalk.models import DEFAULT

from hf.models import tiny

UNSTRETCHED = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}
GEMMA = {"num_hidden_layers": 6, "query_pre_attn_scalar": 16}


def exported(model, place, text="pi:factor=4", **options):
    with extended(model, text):
        return export(model, place, target="llama.cpp", **options)


def read(place):
    """Metadata and tensors, float32 ones as they are and others as bytes."""
    reader = gguf.GGUFReader(place / "model.gguf")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def test_a_llama(tmp_path):
    model = tiny("llama", num_hidden_layers=2)
    said = exported(model, tmp_path / "out", "yarn:factor=4")
    fields, tensors = read(tmp_path / "out")
    assert (fields["general.architecture"], fields["general.file_type"]) == ("llama", gguf.LlamaFileType.ALL_F32)
    sizes = {"context_length": 128, "block_count": 2, "embedding_length": 64, "feed_forward_length": 96}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 16, "vocab_size": 101}
    sizes |= {"rope.dimension_count": 16, "rope.scaling.original_context_length": 32, "rope.scaling.type": "yarn"}
    assert {name: fields[f"llama.{name}"] for name in sizes} == sizes
    assert fields["llama.rope.scaling.factor"] == 4.0
    assert fields["llama.rope.freq_base"] == 10_000.0
    assert "rope_freqs.weight" not in tensors
    assert len(tensors) == len(model.state_dict())
    assert (tmp_path / "out" / "Modelfile").read_text() == "FROM ./model.gguf\nPARAMETER num_ctx 128\n"
    assert "ollama create NAME -f Modelfile" in str(said)
    assert "llama-quantize model.gguf model-Q4_K_M.gguf Q4_K_M" in str(said)
    assert not list((tmp_path / "out").glob("*.safetensors*"))  # the weights are there once


REORDERED = {"llama": True, "granite": True, "qwen3": False, "olmo2": False}


@pytest.mark.parametrize(("name", "reordered"), REORDERED.items())
def test_rows_of_queries_and_keys(tmp_path, name, reordered):
    """Where neighbours make a pair, row i of the first half is followed by row i of the second, in each head."""
    model = tiny(name, num_hidden_layers=1, **UNSTRETCHED)
    exported(model, tmp_path / "out")
    _, tensors = read(tmp_path / "out")
    state, half = model.state_dict(), 8
    for part, kept in (("q", False), ("k", False), ("v", True)):
        weight = state[f"model.layers.0.self_attn.{part}_proj.weight"]
        order = list(range(len(weight)))
        if reordered and not kept:
            pairs = [(head, i, side) for head in range(len(weight) // 16) for i in range(half) for side in (0, 1)]
            order = [16 * head + side * half + i for head, i, side in pairs]
        written = torch.from_numpy(tensors[f"blk.0.attn_{part}.weight"].data.copy())
        torch.testing.assert_close(written, weight[order], rtol=0, atol=0)


def test_norms_of_gemma_have_their_one(tmp_path):
    model = tiny("gemma3_text", **GEMMA)
    exported(model, tmp_path / "out", "ntk:factor=4")
    fields, tensors = read(tmp_path / "out")
    norm = model.state_dict()["model.layers.0.self_attn.q_norm.weight"]
    written = torch.from_numpy(tensors["blk.0.attn_q_norm.weight"].data.copy())
    torch.testing.assert_close(written, norm + 1, rtol=0, atol=0)
    assert "output.weight" not in tensors  # tied
    own = model.config.rope_parameters
    assert fields["gemma3.rope.freq_base"] == pytest.approx(own["full_attention"]["rope_theta"] * 4 ** (16 / 14))
    assert fields["gemma3.rope.freq_base_swa"] == own["sliding_attention"]["rope_theta"]
    assert fields["gemma3.attention.sliding_window"] == 12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_precision_is_the_model_s(tmp_path, dtype):
    model = tiny("qwen2", num_hidden_layers=1)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    exported(model, tmp_path / "out")
    _, tensors = read(tmp_path / "out")
    kind = {torch.bfloat16: "BF16", torch.float16: "F16"}[dtype]
    written, wanted = tensors["blk.0.ffn_up.weight"], model.state_dict()["model.layers.0.mlp.up_proj.weight"]
    assert (written.tensor_type.name, tuple(written.shape)) == (kind, (64, 96))
    assert written.data.tobytes() == wanted.contiguous().view(torch.uint8).numpy().tobytes()
    for name in ("blk.0.attn_norm.weight", "blk.0.attn_q.bias"):
        assert tensors[name].tensor_type.name == "F32"


def test_divisors_are_a_tensor(tmp_path):
    model = tiny("mistral", num_hidden_layers=1, sliding_window=None, **UNSTRETCHED)
    text = "frequencies.ntk_mixed:factor=4+scales.temperature:value=1.3"
    assert exported(model, tmp_path / "out", text, target_len=128).kind == "lowered"
    fields, tensors = read(tmp_path / "out")
    facts = rw.Facts(trained_len=32, head_dim=16)
    table = rw.parse("frequencies.ntk_mixed:factor=4").frequencies_or_rope.table(facts, 1).inv_freq
    written = torch.from_numpy(tensors["rope_freqs.weight"].data.copy())
    assert fields["llama.rope.freq_base"] == 1.0
    torch.testing.assert_close(1 / written, table.float(), rtol=1e-6, atol=0)
    assert "llama.rope.scaling.type" not in fields


@pytest.mark.nightly
def test_the_carried_tokenizer(tmp_path):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(DEFAULT), AutoTokenizer.from_pretrained(DEFAULT)
    said = exported(model, tmp_path / "out", tokenizer=tokenizer)
    assert "under the rules that llama.cpp calls smollm" in str(said)
    fields, _ = read(tmp_path / "out")
    tokens = fields["tokenizer.ggml.tokens"]
    assert tokens == tokenizer.convert_ids_to_tokens(range(len(tokens)))
    kinds = fields["tokenizer.ggml.token_type"]
    assert kinds == [gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (len(tokens) - 1)
    assert (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]) == ("gpt2", "smollm")
    assert (fields["tokenizer.ggml.eos_token_id"], fields["tokenizer.ggml.add_bos_token"]) == (0, False)


@pytest.mark.nightly
def test_other_rules_are_not_given_a_name(tmp_path):
    """A wrong name would split texts differently, and nothing would say so."""
    tokenizer = AutoTokenizer.from_pretrained(DEFAULT)
    rules = tokenizer.backend_tokenizer.pre_tokenizer
    rules[0] = type(rules[0])(individual_digits=False)
    said = exported(AutoModelForCausalLM.from_pretrained(DEFAULT), tmp_path / "out", tokenizer=tokenizer)
    assert "has no name for this tokenizer's rules: the GGUF has no vocabulary" in str(said)
    assert read(tmp_path / "out")[0]["tokenizer.ggml.model"] == "no_vocab"


def test_a_tokenizer_of_another_model(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    with pytest.raises(DoesNotFit, match="ids below 101"):
        exported(model, tmp_path / "out", tokenizer=AutoTokenizer.from_pretrained(DEFAULT))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    ("name", "changed", "match"),
    [
        ("gemma3_text", {"query_pre_attn_scalar": 64}, "query_pre_attn_scalar must be 16, which llama.cpp fixes"),
        ("gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ("gemma3_text", {"layer_types": ["full_attention", *["sliding_attention"] * 5]}, "layer_types"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    ],
)
def test_what_llama_cpp_fixes_is_refused_where_a_config_differs(tmp_path, name, changed, match):
    sizes = GEMMA if name == "gemma3_text" else {"num_hidden_layers": 2}
    with pytest.raises(DoesNotFit, match=match):
        exported(tiny(name, **{**sizes, **changed}), tmp_path / "out", "ntk:factor=4")
    assert list(tmp_path.iterdir()) == []


def test_an_architecture_that_was_never_run_goes_to_the_converter(tmp_path):
    said = exported(tiny("mixtral", num_hidden_layers=1, sliding_window=None), tmp_path / "out")
    assert "no GGUF was written, since mixtral was never run as one of ours" in str(said)
    assert said.command.startswith("python convert_hf_to_gguf.py ")
    assert not (tmp_path / "out" / "model.gguf").exists()
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(
        NotInstalled, match=r"gguf is not installed; in a checkout of Ropewalk, pip install '\.\[llama-cpp\]'"
    ):
        exported(tiny("llama", num_hidden_layers=1), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_every_architecture_was_run():
    """Each has rows in the record of the real engine, in float32, all below the bound; beside them are real models."""
    record = Path(__file__).resolve().parents[3] / "docs" / "results" / "engines" / "llama_cpp.json"
    rows = [row for row in json.loads(record.read_text())["rows"] if row["dtype"] == "float32" and "greedy" not in row]
    assert {row["architecture"] for row in rows} - {"default"} == set(ARCHITECTURES)


@pytest.mark.parametrize("special", [[], ["<s>"]])
def test_a_tokenizer_without_words_is_refused(tmp_path, special):
    """It has the rules of a name that llama.cpp knows, and no word to write."""
    own = Tokenizer(BPE())
    own.pre_tokenizer = ByteLevel(add_prefix_space=False)
    own.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=own)
    with pytest.raises(DoesNotFit, match="tokenizer must be one with words, got 'none'; put the model's own"):
        exported(tiny("llama", num_hidden_layers=1), tmp_path / "out", tokenizer=tokenizer)
    assert not (tmp_path / "out").exists()
