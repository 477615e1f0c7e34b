"""Export without the weights: what the option or the config.json says is what the export of the whole model writes."""

import copy
import json
import shlex

import pytest
from transformers import AutoConfig

import ropewalk as rw
from ropewalk import DoesNotFit
from ropewalk.cli.main import run
from ropewalk.engines.config_only import export_config
from ropewalk.engines.layer_plan import plans_of
from ropewalk.extension.parsing import parse

from hf.kinds import seeing
from hf.models import tiny

TARGET = 128


def made(name):
    return seeing(name) if name.endswith("_vl") else tiny(name, num_hidden_layers=4)


def folder(name, place):
    """A model's config alone."""
    model = made(name)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(place)
    return place


def merged(config, changes):
    """A config after an engine's option: parts of it are merged, as vLLM and SGLang merge them."""
    for key, value in changes.items():
        old = config.get(key)
        config[key] = merged(old, value) if isinstance(old, dict) and key.endswith("_config") else value
    return config


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("name", ["llama", "glm4", "qwen3_next", "qwen3_vl", "phi3"])
@pytest.mark.parametrize("text", ["yarn:factor=4", "abf:new_base=500000"])
@pytest.mark.parametrize(("target", "option"), [("vllm", "--hf-overrides"), ("sglang", "--json-model-override-args")])
def test_the_option_is_what_the_export_writes(tmp_path, name, text, target, option):
    place = folder(name, tmp_path / "model")
    said = export_config(str(place), parse(text), target=target, target_len=TARGET)
    words = shlex.split(said.command)
    assert str(place) in words
    own = json.loads((place / "config.json").read_text())
    changed = merged(copy.deepcopy(own), json.loads(words[words.index(option) + 1]))
    model = made(name)
    rw.extend(model, text, target_len=TARGET)
    whole = rw.export(model, tmp_path / "whole", target=target, target_len=TARGET)
    written = json.loads((tmp_path / "whole" / "config.json").read_text())
    for part in (written, written.get("text_config", {})):
        part.pop("ropewalk_export", None)
    for config in (changed, written):
        for key in ("dtype", "transformers_version", "architectures"):
            config.pop(key, None)
            config.get("text_config", {}).pop(key, None)
    assert said.kind == whole.kind
    assert changed == written
    assert "ropewalk_export" not in said.command


@pytest.mark.parametrize("name", ["llama", "qwen3_vl"])
def test_a_folder_holds_a_config_alone(tmp_path, name):
    place, out = folder(name, tmp_path / "model"), tmp_path / "out"
    said = export_config(str(place), parse("dynamic_yarn"), out, target="vllm", target_len=TARGET)
    assert [path.name for path in out.iterdir()] == ["config.json"]
    text = AutoConfig.from_pretrained(out).get_text_config()
    assert [plan.target_len for plan in plans_of(text)] == [TARGET]
    assert text.vocab_size == AutoConfig.from_pretrained(place).get_text_config().vocab_size
    alone = " --language-model-only" if name == "qwen3_vl" else ""
    assert said.command == f"vllm serve {place} --hf-config-path {out} --max-model-len {TARGET}{alone}"
    with pytest.raises(DoesNotFit, match="cannot hold a plan of Ropewalk's plugin; pass a folder"):
        export_config(str(place), parse("dynamic_yarn"), target="vllm", target_len=TARGET)


@pytest.mark.parametrize(
    ("text", "target", "match"),
    [
        ("yarn:factor=4", "llama.cpp", "llama.cpp reads more than a config"),
        ("yarn:factor=4,over=head", "transformers", "changes weights too"),
        ("window:window=8", "vllm", "another type of model"),
    ],
)
def test_what_a_config_alone_does_not_say_is_refused(tmp_path, text, target, match):
    place = folder("smollm3" if "over" in text else "llama", tmp_path / "model")
    with pytest.raises(DoesNotFit, match=match):
        export_config(str(place), parse(text), target=target, target_len=TARGET)


def test_keys_that_an_engine_would_keep_are_refused(tmp_path):
    """SGLang merges rope parameters, so a key of the model's own schedule would stay beside ours."""
    own = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 16, "mscale": 0.7}
    tiny("llama", num_hidden_layers=1, rope_parameters=own, max_position_embeddings=32).config.save_pretrained(tmp_path)
    with pytest.raises(DoesNotFit, match="would keep mscale of the model's own schedule"):
        export_config(str(tmp_path), parse("pi:factor=4+instead"), target="sglang", target_len=TARGET)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("yarn:factor=4", "texts within 32 tokens change too; `ropewalk compare` measures by how much"),
        ("temperature:value=1.2", "texts within 32 tokens change too; `ropewalk compare` measures by how much"),
        ("rope", "nothing stretches the model: its loss rises beyond 32 tokens, its trained length"),
        ("window:window=32", ""),
    ],
)
def test_what_may_not_be_expected_is_said(tmp_path, text, note):
    model = tiny("llama", num_hidden_layers=1, max_position_embeddings=32)
    rw.extend(model, text, target_len=TARGET)
    whole = rw.export(model, tmp_path / "whole", target="transformers", target_len=TARGET)
    said = [one for one in whole.notes if one.startswith(("texts within", "nothing stretches"))]
    assert said == [note] * bool(note)
    if note and not text.startswith("temperature"):
        of_config = export_config(
            str(folder("llama", tmp_path / "model")), parse(text), target="vllm", target_len=TARGET
        )
        assert note in of_config.notes


def test_a_drafter_is_named(tmp_path):
    """vLLM reads it from the model's own config, and transformers does not load its weights."""
    model = tiny("qwen3_next", num_hidden_layers=4)
    model.config.mtp_num_hidden_layers = 1
    model.config.save_pretrained(tmp_path / "model")
    said = export_config(str(tmp_path / "model"), parse("yarn:factor=4"), target="vllm", target_len=TARGET)
    assert any("drafter (mtp_num_hidden_layers) reads the model's own config.json" in note for note in said.notes)
    rw.extend(model, "yarn:factor=4")
    whole = rw.export(model, tmp_path / "whole", target="vllm", target_len=TARGET)
    assert any("drafter (mtp_num_hidden_layers) is not in the folder" in note for note in whole.notes)


@pytest.mark.nightly
def test_the_command_reads_no_weights(tmp_path, capsys):
    place = folder("llama", tmp_path / "model")
    assert run(["export", str(place), "yarn", "--to", "128", "--config-only"]) == 0
    said = capsys.readouterr().out
    assert f"vllm serve {place} --hf-overrides" in said
    assert "--max-model-len 128" in said
    assert run(["export", str(place), "yarn", "--to", "128", "--config-only", "-o", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]
