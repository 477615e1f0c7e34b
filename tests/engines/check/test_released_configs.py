"""`check` on config.json files as their makers publish them: no error, no wrong "same", little that is not known.

What is expected was read in the engines' sources, which the entries name, and in the makers' own papers and cards.
"""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModel

import ropewalk as rw
from ropewalk.engines.check.reading import read_checkpoint
from ropewalk.engines.rules.standard import standard_rotation
from ropewalk.hf.probe.facts import parse_for_config

from engines.check.folders import RELEASED

ENGINES = (
    *("vllm@0.32", "sglang@0.5.23", "llama.cpp@b11739", "transformers@5.23"),
    *("mlx@0.32", "ollama@0.33", "lmdeploy@0.18", "exllamav3@1.6"),
)
# What an engine has no code for: `_get_classes` of mlx_lm/utils.py, `LoadModelMetadata` of Ollama's convert/convert.go,
# lmdeploy/pytorch/models/module_map.py, exllamav3/architecture/architectures.py.
NO_CODE = {
    "mlx": {"GLM-4.1V-9B-Thinking"},
    "ollama": {
        *("Qwen3-8B", "Qwen3-30B-A3B-Instruct-2507", "GLM-4.5-Air", "GLM-4.6", "SmolLM3-3B", "MiniMax-M2"),
        *("Minitron-4B-Base", "Mistral-7B-v0.1", "Qwen2-VL-7B-Instruct", "GLM-4.1V-9B-Thinking"),
    },
    "lmdeploy": {
        *("Ministral-3-8B-Instruct-2512", "SmolLM3-3B", "LFM2-1.2B", "MiniMax-M2", "c4ai-command-r-v01"),
        "Minitron-4B-Base",
    },
    "exllamav3": {"Llama-4-Scout-17B-16E-Instruct", "Minitron-4B-Base", "Qwen2-VL-7B-Instruct"},
}
UNREAD_DUAL = ("differs", "does not read dual_chunk_attention_config")  # no file of theirs has the word
UNREAD_WINDOW = ("differs", "does not read sliding_window")
# By engine, where it is neither that nor the same, with what its sentences must say.
OTHERWISE = {
    "Qwen2.5-7B-Instruct-1M": {
        # vllm/v1/attention has no backend that takes it since 0.11; sglang/srt has its rotary module alone.
        "vllm": ("refused", "dual_chunk_attention_config"),
        "sglang": ("refused", "dual_chunk_attention_config"),
        **dict.fromkeys(("llama.cpp", "transformers", "mlx", "ollama", "lmdeploy", "exllamav3"), UNREAD_DUAL),
    },
    # convert/convert_qwen3next.go writes qwen35moe; src/models/qwen35moe.cpp requires rope.dimension_sections.
    "Qwen3-Next-80B-A3B-Instruct": {"ollama": ("refused", "mrope_section")},
    "Qwen3.5-35B-A3B with YaRN": {
        # Its length is not multiplied: config/model.py, and get_context_length in hf_transformers/common.py.
        "vllm": ("refused", "262,144"),
        "sglang": ("refused", "262,144"),
        "exllamav3": ("differs", "pair"),  # util/rope.py: the factor is that of the lengths, which is 1
        "ollama": ("refused", "a list"),  # convert_qwen3next.go; `ggufWriteKV` of fs/ggml/gguf.go: improper type
    },
    "Qwen2.5-VL-7B-Instruct with YaRN": {
        "vllm": ("refused", "128,000"),  # as above
        "sglang": ("refused", "128,000"),
        "exllamav3": ("differs", "pair"),  # as above: 128,000 / 32,768
        "ollama": ("refused", "stops at yarn"),  # convert_qwen2.go: its factor is a list of numbers
    },
    # models/llama4.py: no chunks in its attention, and nothing done with attn_temperature_tuning.
    "Llama-4-Scout-17B-16E-Instruct": {"lmdeploy": ("differs", "does not read attention_chunk_size")},
    "Phi-4-mini-instruct": {
        "vllm": ("differs", "pair"),  # phi3_long_rope_scaled_rope.py: the server's length chooses the divisors
        "sglang": ("differs", "divisors"),
        "llama.cpp": ("differs", "pair"),  # llama-model.cpp get_rope_factors: by the context
        "mlx": ("differs", "4,096 tokens"),  # rope_utils.py SuScaledRoPE: long_factor for every text
        "lmdeploy": ("differs", "one table for a step"),  # backends/default/rotary_embedding.py: position_ids.max()
        "exllamav3": ("differs", "4,096 tokens"),  # util/rope.py: by max_position_embeddings
        "ollama": ("refused", "too few divisors"),  # convert_phi3.go: rope.dimension_count is that of a head
    },
    # architecture/deepseek_v3.py: n_group is 1 or missing.
    "DeepSeek-V3": {"exllamav3": ("refused", "n_group")},
    "Kimi-K2-Instruct": {
        "llama.cpp": ("differs", "pair"),  # src/models/deepseek2.cpp reads no betas; Kimi's are 1 and 1
        "ollama": ("differs", "pair"),  # convert_deepseek2.go writes none
        "transformers": ("refused", "no code of its own for kimi_k2"),
    },
    "gpt-oss-20b": {
        "llama.cpp": ("differs", "pair"),  # ggml_rope_yarn_corr_dims rounds; OpenAI says truncate: false
        "ollama": ("differs", "pair"),  # by llama.cpp
        "mlx": ("differs", "pair"),  # rope_utils.py YarnRoPE rounds
    },
    "Ministral-3-8B-Instruct-2512": {"vllm": ("differs", "queries")},  # mistral.py reads llama_4_scaling
    # This config has full_attn_idxs: architecture/lfm2.py and convert_lfm2.go read layer_types.
    "LFM2-1.2B": {"exllamav3": ("refused", "full_attn_idxs"), "ollama": ("refused", "full_attn_idxs")},
    "Mistral-7B-v0.1": {
        "sglang": UNREAD_WINDOW,  # models/mistral.py is llama.py, without windows
        "llama.cpp": UNREAD_WINDOW,  # conversion/llama.py writes none
        "mlx": UNREAD_WINDOW,  # models/llama.py: by layer_types, which the file does not have
        "exllamav3": UNREAD_WINDOW,  # architecture/mistral.py is llama.py, which hands none to the attention
    },
}
# Tokens: trained without a schedule that was added later, and what says so where the config does not.
TRAINED = {
    "Qwen2.5-7B-Instruct-1M": (262_144, "dual_chunk_attention_config"),
    "Qwen3-8B": (32_768, "Qwen3"),
    "Qwen3.5-35B-A3B": (262_144, ""),
    "Qwen3.5-35B-A3B with YaRN": (262_144, ""),
    "Llama-4-Scout-17B-16E-Instruct": (262_144, "Meta"),
    "DeepSeek-V3": (131_072, "2412.19437"),
    "Kimi-K2-Instruct": (131_072, ""),
    "LFM2-1.2B": (32_768, "LFM2"),
    "c4ai-command-r-v01": (131_072, "model_max_length"),
    "Mistral-7B-v0.1": (8192, "2310.06825"),
    "SmolLM3-3B": (65_536, ""),
}
ROTATING = {  # dimensions of a head, of those that it has
    "Qwen3-Next-80B-A3B-Instruct": (64, 256),
    "Qwen3.5-35B-A3B": (64, 256),
    "Qwen3.5-35B-A3B with YaRN": (64, 256),
    "GLM-4.5-Air": (64, 128),
    "GLM-4.6": (64, 128),
    "GLM-4.1V-9B-Thinking": (64, 128),
    "MiniMax-M2": (64, 128),
    "Minitron-4B-Base": (64, 128),
    "Phi-4-mini-instruct": (96, 128),
}


def written(tmp_path, name):
    """The config alone, as it lies on the hub."""
    (tmp_path / "config.json").write_text(json.dumps(RELEASED[name]))
    return tmp_path / "config.json"


def expected(name, engine):
    """The verdict, and what its sentence must say."""
    engine = engine.partition("@")[0]
    without = name in NO_CODE.get(engine, ())
    assert not (without and engine in OTHERWISE.get(name, {}))
    return ("refused", "has no code for") if without else OTHERWISE.get(name, {}).get(engine, ("same", ""))


@pytest.mark.parametrize("name", RELEASED)
def test_answers(tmp_path, name):
    """The config.json is all there is: no code that came with it, no weights, no tokenizer."""
    for engine in ENGINES:
        checked = rw.check(written(tmp_path, name), engine=engine)
        verdict, says = expected(name, engine)
        assert checked.verdict == verdict, str(checked)
        if says:
            (finding, *others) = (one for one in checked.findings if one.kind == verdict)
            assert says in finding.sentence
            assert any(one.remedy for one in (finding, *others)), str(checked)


def test_nothing_is_unknown():
    """Less than the tenth of all answers that may be: the source says it of each."""
    assert {*OTHERWISE, *(name for names in NO_CODE.values() for name in names)} <= {*RELEASED}
    assert (len(ENGINES), len(RELEASED) >= 20) == (8, True)
    assert "unknown" not in {expected(name, engine)[0] for name in RELEASED for engine in ENGINES}


@pytest.mark.parametrize("name", TRAINED)
def test_trained_lengths(tmp_path, name):
    tokens, source = TRAINED[name]
    checked = rw.check(written(tmp_path, name), engine="sglang")
    assert checked.trained_len == tokens
    assert source in checked.trained_source
    assert bool(source) == bool(checked.trained_source)
    assert f"{tokens:,} tokens" in str(checked)


def test_a_length_that_only_cohere_means(tmp_path):
    """Others write what a tokenizer cuts texts at under the same name."""
    (tmp_path / "config.json").write_text(json.dumps({**RELEASED["Mistral-7B-v0.1"], "model_max_length": 131_072}))
    assert rw.check(tmp_path / "config.json", engine="sglang").trained_len == TRAINED["Mistral-7B-v0.1"][0]


@pytest.mark.parametrize(("name", "factor"), [("Qwen3-8B", 4.0), ("Qwen2.5-7B-Instruct-1M", 4.0)])
def test_the_printed_export_has_the_makers_factor(tmp_path, name, factor):
    """Qwen: YaRN by 4 of 32,768, to 131,072. An export works its factor out from what is known of the config too."""
    to = round(TRAINED[name][0] * factor)
    checked = rw.check(written(tmp_path, name), engine="transformers", target_len=to)
    (remedy,) = {one.remedy for one in checked.findings if "export" in one.remedy}
    assert remedy == f"ropewalk export MODEL yarn --to {to} --target transformers -o FOLDER"
    text = AutoConfig.from_pretrained(tmp_path).get_text_config()
    assert parse_for_config(text, "yarn", to).frequencies.factor == factor


@pytest.mark.parametrize(("engine", "within"), [("llama.cpp", "-c 262144"), ("transformers", "262,144 tokens at most")])
def test_within_the_first_chunk_nothing_is_missing(tmp_path, engine, within):
    place = written(tmp_path, "Qwen2.5-7B-Instruct-1M")
    assert within in str(rw.check(place, engine=engine))
    checked = rw.check(place, engine=engine, target_len=262_144)
    assert checked.verdict == "same"
    assert checked.ignored == ("dual_chunk_attention_config",)


def test_a_base_that_sglang_reads_beside_the_rope_parameters(tmp_path):
    """sglang/srt/models/qwen3_next.py: config.rope_theta, which transformers 5 moves away when it saves."""
    assert rw.check(written(tmp_path, "Qwen3-Next-80B-A3B-Instruct"), engine="sglang").verdict == "same"
    AutoConfig.from_pretrained(tmp_path).save_pretrained(tmp_path)
    checked = rw.check(tmp_path, engine="sglang")
    assert checked.verdict == "differs"
    assert "pair" in checked.findings[0].sentence
    changes = '{"rope_theta": 10000000, "partial_rotary_factor": 0.25}'
    assert checked.findings[0].remedy == f"--json-model-override-args '{changes}' --context-length 262144"
    assert rw.check(tmp_path, engine="vllm").verdict == "same"


def test_positions_of_several_axes_in_vllm(tmp_path):
    """Four rows a token, and YaRN's ramp for four times the length; no remedy takes the axes away."""
    table = rw.check(written(tmp_path, "Qwen2-VL-7B-Instruct"), engine="vllm@0.32").layers[0].engine
    assert table.rows == 4 * 32_768
    place = written(tmp_path, "Qwen2.5-VL-7B-Instruct with YaRN")
    checked = rw.check(place, engine="vllm@0.32", target_len=128_000)
    assert (checked.verdict, "pair" in checked.findings[0].sentence) == ("differs", True)
    assert all("overrides" not in one.remedy for one in checked.findings)


@pytest.mark.parametrize("name", ["Qwen3-8B", "LFM2-1.2B", "Mistral-7B-v0.1"])
def test_what_nobody_reads_is_listed(tmp_path, name):
    """A key that says something of positions, whoever made it up."""
    (tmp_path / "config.json").write_text(
        json.dumps({**RELEASED[name], "use_logn_attn": True, "use_dynamic_ntk": False})
    )
    for engine in (engine for engine in ENGINES if expected(name, engine)[0] != "refused"):
        ignored = rw.check(tmp_path, engine=engine, target_len=4096).ignored
        assert "use_logn_attn" in ignored
        assert "use_dynamic_ntk" not in ignored


@pytest.mark.sampled(cases=13)
@pytest.mark.parametrize("name", [name for name in RELEASED if name not in ("Phi-4-mini-instruct", "gemma-3-4b-it")])
def test_what_is_meant_is_what_the_makers_module_rotates_by(tmp_path, name):
    """transformers' own module of the model, at its full size; a text token has the same position on every axis."""
    rope, text = read_checkpoint(written(tmp_path, name)).rope, read_checkpoint(tmp_path).config.get_text_config()
    meant, module = standard_rotation(rope, "", 1), rotary_module(text)
    torch.testing.assert_close(module.inv_freq.double(), meant.inv_freq, rtol=3e-6, atol=0)
    assert module.attention_scaling == pytest.approx(meant.temperature, rel=1e-6)
    assert 2 * len(meant.inv_freq) == ROTATING.get(name, (rope.head_dims[""],))[0]
    positions = torch.tensor([[0, 1, 7, 100]])
    axes = positions.expand(3, 1, -1) if "mrope_section" in rope.parts[""] else positions
    cos = module(torch.zeros(1), axes)
    cos = cos[0] if isinstance(cos, tuple) else cos.real
    expected = ((positions[0, :, None] * meant.inv_freq).cos() * meant.temperature).float()
    torch.testing.assert_close(cos[0, :, : len(meant.inv_freq)].float(), spread(name, expected), rtol=1e-4, atol=1e-4)


def spread(name, cos):
    """Cohere's module and GLM's repeat each pair beside itself."""
    beside = name in ("c4ai-command-r-v01", "GLM-4.1V-9B-Thinking")
    return cos.repeat_interleave(2, -1)[:, : cos.shape[1]] if beside else cos


def rotary_module(text):
    """The module that makes cos and sin, of a model of one layer without weights to speak of."""
    small = type(text).from_dict({**text.to_dict()})
    with torch.device("meta"):
        model = AutoModel.from_config(small)
    kind = next(type(module) for module in model.modules() if "Rotary" in type(module).__name__)
    return kind(config=text)
