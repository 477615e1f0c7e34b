"""`ropewalk check`, as a pipeline runs it."""

import json

import pytest
from transformers import LlamaConfig, Qwen3Config

from ropewalk.cli.main import run


@pytest.fixture
def qwen(tmp_path):
    """A config with YaRN as Qwen's makers write it."""
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32_768}
    Qwen3Config(head_dim=128, max_position_embeddings=40_960, rope_parameters=rope).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("engine", ["vllm@0.32", "sglang", "llama.cpp", "transformers"])
def test_the_same(engine, capsys):
    assert run(["check", "default", "--engine", engine]) == 0
    assert capsys.readouterr().out.startswith("same: ")


def test_refused_with_the_flags_that_mend_it(qwen, capsys):
    """The status is the pipeline's; --to is what the server is for."""
    assert run(["check", str(qwen / "config.json"), "--engine", "vllm@0.32", "--to", "128k"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("refused: ")
    assert """-> --hf-overrides '{"max_position_embeddings": 131072}' --max-model-len 131072""" in shown
    assert run(["check", str(qwen), "--engine", "vllm@0.29", "--to", "128k"]) == 0


def test_json(qwen, capsys):
    assert run(["check", str(qwen), "--engine", "sglang", "--to", "128k", "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert (values["engine"], values["verdict"], values["target_len"]) == ("sglang", "refused", 131_072)
    assert len(values["layers"][0]["inv_freq"]["engine"]) == 64


def test_what_is_not_known_is_not_passed(tmp_path, capsys):
    rope = {"rope_type": "ntk", "rope_theta": 10_000.0, "factor": 2.0}
    LlamaConfig(rope_parameters=rope).save_pretrained(tmp_path)
    assert run(["check", str(tmp_path), "--engine", "llama.cpp"]) == 1
    assert capsys.readouterr().out.startswith("unknown: ")


def test_a_corrected_length(qwen, capsys):
    assert run(["check", str(qwen), "--trained-len", "32k"]) == 0
    assert "at 32,768 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["default", "--engine", "vllm@0.99"], "is not known, and is not guessed; known: 0.19 to 0.21, 0.22 to 0.29"),
        (["default", "--engine", "vllm@0.99"], "to 0.29, 0.30, 0.31 to 0.32"),
        (["default", "--engine", "vlm"], "did you mean 'vllm'?"),
        (["default", "--to", "none"], "--to"),
        (["no/such/folder"], "an existing folder"),
        (["default", "--target", "vllm"], "No such option: --target"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use(arguments, match, capsys):
    assert run(["check", *arguments]) == 2
    assert match in capsys.readouterr().err
