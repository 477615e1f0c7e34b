"""What is saved comes back the same, with plain transformers where its config has the words, and never by halves."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ropewalk import DoesNotFit, InvalidValue, Unreadable, extended, load, save
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.sidecar import FILE

from hf.models import tiny
from hf.traces import logits, trace

IDS = torch.randint(3, 97, (2, 100), generator=torch.Generator().manual_seed(5))
# What the config must say, by the formulas: base 10,000, 16 dimensions, trained on 32.
STATIC = {
    "pi:factor=4": {"rope_type": "linear", "factor": 4.0},
    "yarn:factor=4": {"rope_type": "yarn", "factor": 4.0, "attention_factor": pytest.approx(1.1386294)},
    "by_parts:factor=4": {"rope_type": "yarn", "attention_factor": 1.0},
    "llama3:factor=4": {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 32},
    "ntk:factor=4": {"rope_type": "default", "rope_theta": pytest.approx(10_000 * 4 ** (16 / 14))},
    "abf:new_base=500000": {"rope_type": "default", "rope_theta": 500_000.0},
    "frequencies.ntk_mixed:factor=4": {"rope_type": "longrope", "factor": 1.0, "original_max_position_embeddings": 128},
}
BESIDE = ["dynamic_yarn", "rerope:window=8+log_n", "streaming:window=10,n_sink=2", "biases.alibi", "log_n"]


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("name", ["llama", "gpt_neox", "gemma3_text", "qwen3"])
@pytest.mark.parametrize("text", STATIC)
def test_static_schedules_load_with_plain_transformers(tmp_path, name, text):
    model = tiny(name, num_hidden_layers=6 if name == "gemma3_text" else 2)
    with extended(model, text):
        expected = logits(model, IDS)
        how = save(model, tmp_path / "saved", target_len=128)
    assert how.startswith("transformers")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(logits(again, IDS), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))
    if name == "llama":
        config = json.loads((tmp_path / "saved" / "config.json").read_text())
        assert config["max_position_embeddings"] == 128
        assert {key: config["rope_parameters"][key] for key in STATIC[text]} == STATIC[text]
        assert "rope_theta" in config["rope_parameters"]


@pytest.mark.parametrize("text", ["pi:factor=4", "ntk:factor=4", "llama3:factor=4", "frequencies.ntk_mixed:factor=4"])
def test_the_share_of_dimensions_that_turn_is_kept(tmp_path, text):
    """Three quarters, which is not what its config says where nothing is stated."""
    plain = {"rope_type": "default", "rope_theta": 10_000.0}
    model = tiny("phi", num_hidden_layers=1, rope_parameters={**plain, "partial_rotary_factor": 0.75})
    with extended(model, text):
        expected = logits(model, IDS)
        assert save(model, tmp_path / "saved", target_len=128).startswith("transformers")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    assert again.config.rope_parameters["partial_rotary_factor"] == 0.75
    torch.testing.assert_close(logits(again, IDS), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("text", BESIDE)
def test_the_rest_comes_back_extended(tmp_path, text):
    model = tiny("llama", num_hidden_layers=2)
    before = trace(model)
    with extended(model, text):
        expected = logits(model, IDS)
        how = save(model, tmp_path / "saved")
    assert how.startswith("ropewalk.load")
    assert trace(model) == before
    assert torch.equal(logits(load(tmp_path / "saved"), IDS), expected)


@pytest.mark.parametrize("name", ["smollm3", "hunyuan_v1_dense", "nanochat"])
def test_a_temperature_that_cos_and_sin_cannot_carry_is_kept_beside(tmp_path, name):
    """A layer that turns nothing never sees them; a norm after the rotation undoes what they multiply by."""
    model = tiny(name)
    with extended(model, "yarn:factor=4,over=head"):
        expected = logits(model, IDS)
        assert "temperature" in save(model, tmp_path / "saved")
    assert torch.equal(logits(load(tmp_path / "saved"), IDS), expected)
    for text, folder in (("by_parts:factor=4", "plain"), ("yarn:factor=4", "warm")):
        with extended(model, text):
            expected = logits(model, IDS)
            assert save(model, tmp_path / folder).startswith("transformers")
        again = AutoModelForCausalLM.from_pretrained(tmp_path / folder)
        torch.testing.assert_close(logits(again, IDS), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


def test_a_window_for_all_layers_is_no_matter_of_the_config(tmp_path):
    model = tiny("mistral", num_hidden_layers=2)
    with extended(model, "rerope:window=8", lift_windows=True):
        expected = logits(model, IDS)
        save(model, tmp_path / "saved")
    torch.testing.assert_close(logits(load(tmp_path / "saved"), IDS), expected)


def test_the_mode_is_kept(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "dynamic_ntk", mode="attention"):
        save(model, tmp_path / "saved")
    assert handle_of(load(tmp_path / "saved")).mode == "attention"
    kept = tmp_path / "saved" / "ropewalk.json"
    kept.write_text(kept.read_text().replace('"mode": "attention",', ""))  # as it was before modes were kept
    assert handle_of(load(tmp_path / "saved")).mode == "attention"


def test_a_folder_that_is_not_there_is_refused_without_a_network(monkeypatch):
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("asked transformers"))
    with pytest.raises(Unreadable, match="an existing folder, a GGUF file, default, or a name on the hub: owner/name"):
        load("nowhere")


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    model = tiny("llama", num_hidden_layers=1)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(AutoConfig.for_model("llama")), "save_pretrained", full)
    with extended(model, "yarn:factor=4"), pytest.raises(InvalidValue, match="No space"):
        save(model, tmp_path / "deep" / "saved")
    assert list((tmp_path / "deep").iterdir()) == []


def test_what_does_not_come_back_the_same_is_not_saved(tmp_path, monkeypatch):
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "yarn:factor=4"):
        monkeypatch.setattr("ropewalk.hf.attach.saving.standard_config", lambda config, *_: config)
        with pytest.raises(DoesNotFit, match="the same when loaded"):
            save(model, tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    with pytest.raises(InvalidValue, match="extend it first"):
        save(model, tmp_path / "saved")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with extended(model, "log_n"):
        with pytest.raises(InvalidValue, match="new or empty"):
            save(model, tmp_path / "full")
        save(model, tmp_path / "saved")
    (tmp_path / "saved" / FILE).write_text("{")
    with pytest.raises(Unreadable, match="what save wrote"):
        load(tmp_path / "saved")


@pytest.mark.parametrize("text", ["biases.t5", "biases.kerple_log"])
def test_what_a_bias_has_learned_is_trained_and_comes_back(tmp_path, text):
    model = tiny("llama", num_hidden_layers=2)
    before = trace(model)
    with extended(model, text):
        bare, names = logits(model, IDS), {name for name, _ in model.named_parameters() if "ropewalk" in name}
        assert names
        model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name in names:
                    assert float(value.grad.abs().max()) > 0
                    value -= 0.5 * value.grad.sign() * value.abs().clamp(min=0.1)
        expected = logits(model, IDS)
        assert not torch.allclose(expected, bare)
        save(model, tmp_path / "saved")
    assert trace(model) == before
    torch.testing.assert_close(logits(load(tmp_path / "saved"), IDS), expected, rtol=0, atol=1e-4)


def test_weights_that_are_missing_are_not_left_at_random(tmp_path):
    model = tiny("llama", num_hidden_layers=1, tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "tied")
    assert torch.equal(logits(load(tmp_path / "tied"), IDS), logits(model, IDS))
    state = {name: value for name, value in model.state_dict().items() if "k_proj" not in name}
    model.save_pretrained(tmp_path / "part", state_dict=state)
    with pytest.raises(Unreadable, match=r"k_proj\.weight"):
        load(tmp_path / "part")


def test_the_tokenizer_goes_along_or_nothing_goes(tmp_path):
    class Tokenizer:
        def save_pretrained(self, place):
            if self.full:
                raise Exception("No space left on device")
            (place / "tokenizer.json").touch()

    model, tokenizer = tiny("llama", num_hidden_layers=1), Tokenizer()
    with extended(model, "yarn:factor=4"):
        tokenizer.full = True
        with pytest.raises(InvalidValue, match="No space"):
            save(model, tmp_path / "saved", tokenizer=tokenizer)
        assert list(tmp_path.iterdir()) == []
        tokenizer.full = False
        save(model, tmp_path / "saved", tokenizer=tokenizer)
    assert (tmp_path / "saved" / "tokenizer.json").exists()
