"""What Trainer writes of an extended model: a config that says the schedule, or a closed one with the sidecar."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.closed_config import SENTENCE

from hf.models import tiny
from hf.traces import logits
from nightly import first_of_each

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
MODELS = ["llama", "qwen3", "gemma3_text", "phi3", "glm4", "gpt_neox", "olmo2", "deepseek_v3", "gpt_oss"]
PLAIN = ["pi:factor=4", "ntk:factor=4", "llama3:factor=4", "abf:new_base=500000"]  # without a temperature
STATIC = [*PLAIN, "yarn:factor=4"]
HOW = {"save_steps": 1, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True, "disable_tqdm": True}
pytestmark = pytest.mark.filterwarnings("ignore")  # Trainer's own


def trainer(model, folder, steps):
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(3, 97, (8, 24))]
    arguments = TrainingArguments(str(folder), max_steps=steps, learning_rate=1e-4, **HOW)
    return Trainer(model, arguments, train_dataset=rows)


def close(expected):
    return {"rtol": 0, "atol": 2e-3 * float(expected.abs().max())}


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("text", STATIC)
@pytest.mark.parametrize("name", MODELS)
def test_plain_transformers_loads_what_a_config_can_say(tmp_path, name, text):
    """Saved twice: what the first has written, and what the extension needed before, is replaced."""
    model = tiny(name, num_hidden_layers=6 if name == "gemma3_text" else 2)
    with rw.extended(model, "log_n"):
        model.save_pretrained(tmp_path)
    with rw.extended(model, text):
        expected = logits(model, IDS)
        model.save_pretrained(tmp_path)
        model.save_pretrained(tmp_path)
        stated = not (tmp_path / "ropewalk.json").exists()
        assert stated == rw.save(model, tmp_path / "saved", target_len=128).startswith("transformers")
    torch.testing.assert_close(logits(rw.load(tmp_path).eval(), IDS), expected, **close(expected))
    if stated:
        again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
        torch.testing.assert_close(logits(again, IDS), expected, **close(expected))
    else:
        with pytest.raises(KeyError, match=SENTENCE):
            AutoModelForCausalLM.from_pretrained(tmp_path)
    assert stated or name in ("deepseek_v3", "gpt_oss") or text not in PLAIN


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", first_of_each([*STATIC[::-1], "rerope:window=8", "kerple", "dynamic_yarn"], lambda text: text in STATIC)
)
def test_checkpoints_of_a_trainer(tmp_path, text):
    model = tiny("llama", num_hidden_layers=2)
    rw.extend(model, text)
    trainer(model, tmp_path / "run", 2).train()
    expected = logits(model.eval(), IDS)
    place = tmp_path / "run" / "checkpoint-2"
    torch.testing.assert_close(logits(rw.load(place).eval(), IDS), expected, **close(expected))
    assert (handle_of(rw.load(place)) is None) == (text in STATIC)
    if text in STATIC:
        again = AutoModelForCausalLM.from_pretrained(place).eval()
        torch.testing.assert_close(logits(again, IDS), expected, **close(expected))
    other = tiny("llama", num_hidden_layers=2)
    rw.extend(other, text)
    longer = trainer(other, tmp_path / "longer", 3)
    longer.train(resume_from_checkpoint=str(place))
    assert longer.state.global_step == 3


def test_the_length_is_what_the_caller_named_or_the_schedule_states(tmp_path):
    lengths = {("yarn", 256): 256, ("yarn:factor=4", None): 128, ("abf:new_base=500000", 512): 512}
    lengths["abf:new_base=500000", None] = 32
    for number, ((text, target_len), expected) in enumerate(lengths.items()):
        model = tiny("llama", num_hidden_layers=1)
        with rw.extended(model, text, target_len=target_len):
            model.save_pretrained(tmp_path / str(number))
        again = AutoModelForCausalLM.from_pretrained(tmp_path / str(number))
        assert again.config.max_position_embeddings == expected


@pytest.mark.parametrize("wrong", ["other tables", "other arguments"])
def test_a_config_that_would_be_read_as_something_else_is_not_written(tmp_path, monkeypatch, wrong):
    """No weights are loaded to compare, so the rotary modules are made from the config."""
    model = tiny("llama", num_hidden_layers=1)
    rotary = type(model.model.rotary_emb)
    make = rotary.__init__

    def made(module, config):
        make(module, config)
        if wrong == "other arguments":
            raise TypeError
        module.inv_freq *= 1.01

    with rw.extended(model, "yarn:factor=4"):
        expected = logits(model, IDS)
        with monkeypatch.context() as patched:
            patched.setattr(rotary, "__init__", made)
            model.save_pretrained(tmp_path)
    with pytest.raises(KeyError, match=SENTENCE):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits(rw.load(tmp_path), IDS), expected)
