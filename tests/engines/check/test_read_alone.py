"""Engines whose rules were read and not run: what each does that others do not."""

import json

import pytest

import ropewalk as rw

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
LINEAR_BY_8 = {"rope_type": "linear", "factor": 8.0}
CONV = {"layer_types": ["conv", "full_attention"]}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def verdict(tmp_path, engine, name="llama", schedule=None, inside=False, length=256, part_of="", beside=None, **own):
    """Of a config as releases have it, or, `inside`, as transformers 5 saves it; alone or as a part of a whole."""
    values = {"model_type": name, "head_dim": 16, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    rope = {"rope_theta": 20_000.0, **own}
    values |= {"rope_parameters": {**rope, **(schedule or {})}} if inside else {**rope, "rope_scaling": schedule}
    values |= {"max_position_embeddings": length, **(beside or {})}
    whole = {"model_type": part_of, "text_config": values} if part_of else values
    (tmp_path / "config.json").write_text(json.dumps(whole))
    return rw.check(tmp_path / "config.json", engine=engine)


@pytest.mark.parametrize(
    ("engine", "case", "said"),
    [
        ("lmdeploy", {"schedule": YARN}, "same"),
        ("lmdeploy", {"schedule": {**YARN, "truncate": False, "attention_factor": 1.2}, "inside": True}, "same"),
        ("lmdeploy", {"schedule": {**LONGROPE, **{"original_max_position_embeddings": 64}}}, "differs"),  # its cache
        ("lmdeploy", {"schedule": {"rope_type": "proportional"}}, "refused"),
        ("lmdeploy", {"name": "gemma3_text"}, "refused"),
        ("lmdeploy", {"name": "granite"}, "refused"),
        ("lmdeploy", {"name": "qwen3", "part_of": "got_ocr2"}, "unknown"),
        ("lmdeploy", {"name": "mistral", "part_of": "mistral3"}, "refused"),
        ("exllamav3", {"schedule": YARN}, "same"),
        ("exllamav3", {"schedule": YARN, "length": 128}, "differs"),  # the factor is that of the lengths
        ("exllamav3", {"schedule": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}}, "differs"),
        ("exllamav3", {"schedule": LLAMA3, "inside": True}, "same"),
        ("exllamav3", {"schedule": {"rope_type": "dynamic", "factor": 4.0}}, "refused"),
        ("exllamav3", {"name": "gemma3_text", "schedule": YARN}, "same"),
        ("exllamav3", {"name": "granite"}, "refused"),
        ("exllamav3", {"name": "ernie4_5"}, "unknown"),
        ("exllamav3", {"part_of": "llava"}, "unknown"),
        ("exllamav3", {"name": "gemma2", "length": 8192}, "differs"),  # the window
        ("exllamav3", {"name": "lfm2", "inside": True, "beside": CONV}, "same"),
        ("ollama", {}, "same"),
        ("ollama", {"inside": True}, "differs"),  # the base
        ("ollama", {"schedule": {**YARN, "type": "yarn"}}, "differs"),
        ("ollama", {"schedule": {"type": "linear", "factor": 4.0}}, "same"),
        ("ollama", {"schedule": LLAMA3}, "same"),
        ("ollama", {"beside": {"num_attention_heads": 2}}, "refused"),  # rope.dimension_count is not that of its heads
        ("ollama", {"name": "qwen2"}, "same"),
        ("ollama", {"name": "qwen2", "inside": True}, "unknown"),
        ("ollama", {"name": "qwen2", "schedule": {**YARN, "type": "yarn"}}, "refused"),  # its factor is a number
        ("ollama", {"name": "gemma3_text", "schedule": YARN}, "same"),
        ("ollama", {"name": "gemma3_text", "length": 32_768}, "same"),
        ("ollama", {"name": "gemma3_text", "length": 131_072}, "differs"),  # taken for the large ones: linear by 8
        ("ollama", {"name": "gemma3_text", "part_of": "gemma3", "schedule": LINEAR_BY_8}, "differs"),  # the base
        ("ollama", {"name": "gpt_oss"}, "unknown"),
        ("ollama", {"name": "lfm2", "inside": True, "beside": CONV}, "same"),
        ("ollama", {"name": "gemma2"}, "unknown"),
        ("ollama", {"name": "granite"}, "refused"),
        ("ollama-mlx", {}, "same"),
        ("ollama-mlx", {"name": "qwen3", "inside": True}, "differs"),
        ("ollama-mlx", {"schedule": LLAMA3}, "differs"),
        ("ollama-mlx", {"name": "granite"}, "unknown"),
    ],
)
def test_verdicts(tmp_path, engine, case, said):
    checked = verdict(tmp_path, engine, **case)
    assert checked.verdict == said, str(checked)
    assert "not run" in checked.source


def test_a_dynamic_schedule_in_lmdeploy_keeps_keys_of_their_step(tmp_path):
    verdict(tmp_path, "lmdeploy", schedule={"rope_type": "dynamic", "factor": 4.0})
    assert "keys in the cache" in str(rw.check(tmp_path / "config.json", engine="lmdeploy", target_len=512))


@pytest.mark.parametrize(
    ("engine", "target"), [("ollama", "llama.cpp"), ("lmdeploy", "transformers"), ("exllamav3", "transformers")]
)
def test_remedies_name_an_export_that_the_engine_reads(tmp_path, engine, target):
    verdict(tmp_path, engine)
    checked = rw.check(tmp_path / "config.json", engine=engine, target_len=1024)
    remedies = [finding.remedy for finding in checked.findings if "export" in finding.remedy]
    assert remedies
    assert all(f"yarn --to 1024 --target {target} -o FOLDER" in remedy for remedy in remedies) or engine == "ollama"
