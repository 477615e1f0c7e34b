"""A folder with a sidecar: Ropewalk reads it, and everything else stops at its config."""

import json

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForCausalLM, pipeline

from ropewalk import Unreadable, extended, load, models, save
from ropewalk.hf.checkpoint.closed_config import SENTENCE
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_tokenizer

from hf.models import tiny
from hf.own_code import bringing_code
from hf.traces import logits

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(5))
# Rotary parameters of the whole model, of types of layers, with a schedule of their own, with a temperature.
NAMES = ["llama", "gemma3_text", "phi3", "gpt_oss", "deepseek_v3", "ministral3", "cohere2", "glm4"]


@pytest.fixture
def folder(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "dynamic_yarn"):
        save(model, tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_config_stops_transformers_and_comes_back(tmp_path, name):
    model = tiny(name, num_hidden_layers=6 if name == "gemma3_text" else 2)
    config = json.loads(model.config.to_json_string())
    with extended(model, "rerope:window=8"):
        expected = logits(model, IDS)
        save(model, tmp_path / "saved")
    for kind in (AutoModelForCausalLM, type(model)):
        with pytest.raises((KeyError, StrictDataclassError), match=SENTENCE):  # Phi-3's config refuses it itself
            kind.from_pretrained(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert torch.equal(logits(again, IDS), expected)
    restored = json.loads(again.config.to_json_string())
    changing = ("architectures", "dtype", "transformers_version")
    assert {**restored, **dict.fromkeys(changing)} == {**config, **dict.fromkeys(changing)}
    assert again.config.architectures == [type(model).__name__]


@pytest.mark.parametrize("text", ["dynamic_yarn", "log_n"])
def test_what_save_pretrained_wrote_stops_transformers_too(tmp_path, text):
    """As Trainer writes its checkpoints: what no config can say."""
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, text):
        model.save_pretrained(tmp_path / "once")
        model.save_pretrained(tmp_path / "once")
        expected = logits(model, IDS)
    with pytest.raises(KeyError, match=SENTENCE):
        AutoModelForCausalLM.from_pretrained(tmp_path / "once")
    assert torch.equal(logits(load(tmp_path / "once"), IDS), expected)
    model.save_pretrained(tmp_path / "plain")
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "plain"), IDS), logits(model, IDS))


def test_other_programs_find_no_architecture(folder):
    """Converters that read no rotary parameters look for the architecture's name."""
    assert json.loads((folder / "config.json").read_text())["architectures"] == [SENTENCE]


def test_without_its_sidecar_the_folder_stays_closed(folder):
    (folder / "ropewalk.json").unlink()
    with pytest.raises(Unreadable, match=SENTENCE):
        load(folder)


def test_what_was_saved_before_configs_were_closed_still_loads(folder):
    expected = logits(load(folder), IDS)
    fetch_config(folder).save_pretrained(folder)
    assert SENTENCE not in (folder / "config.json").read_text()
    assert torch.equal(logits(load(folder), IDS), expected)


def test_arguments_of_loading_still_reach_the_model(folder):
    model = load(folder, dtype=torch.bfloat16, use_cache=False, attention_dropout=0.25)
    assert (model.dtype, model.config.use_cache) == (torch.bfloat16, False)
    assert model.model.layers[0].self_attn.attention_dropout == 0.25
    assert load(folder, dtype="auto").dtype == torch.float32


def test_config_and_tokenizer_are_read_without_a_warning(tmp_path, caplog):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(models.DEFAULT), fetch_tokenizer(models.DEFAULT)
    with extended(model, "rerope"):
        save(model, tmp_path / "saved", tokenizer=tokenizer)
    assert fetch_config(tmp_path / "saved").rope_parameters["rope_type"] == "default"
    assert fetch_tokenizer(tmp_path / "saved")("again").input_ids == tokenizer("again").input_ids
    assert SENTENCE not in caplog.text
    with pytest.raises(KeyError, match=SENTENCE):
        pipeline("text-generation", str(tmp_path / "saved"))


def test_a_tokenizer_is_read_beside_a_config_that_refuses_the_type_itself(tmp_path):
    model, tokenizer = tiny("phi3", num_hidden_layers=1), fetch_tokenizer(models.DEFAULT)
    with extended(model, "rerope:window=8"):
        save(model, tmp_path / "saved", tokenizer=tokenizer)
    assert fetch_tokenizer(tmp_path / "saved")("again").input_ids == tokenizer("again").input_ids


@pytest.mark.parametrize("text", ["rerope:window=8", "yarn:factor=4"])
def test_code_that_comes_with_a_model_reads_its_closed_config(tmp_path, monkeypatch, text):
    tiny("llama", num_hidden_layers=1).save_pretrained(tmp_path / "plain")
    with bringing_code(tmp_path / "plain", tmp_path, monkeypatch) as (place, _):
        model = load(place, trust_remote_code=True)
        with extended(model, text):
            model.save_pretrained(tmp_path / "saved")
            expected = logits(model, IDS)
        assert torch.equal(logits(load(tmp_path / "saved", trust_remote_code=True), IDS), expected)
