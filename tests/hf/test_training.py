"""Training an extended model with the tools that people have: Trainer, accelerate, peft."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from ropewalk import extend, extended, load
from ropewalk.hf.attach import attention
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.closed_config import SENTENCE
from ropewalk.hf.checkpoint.sidecar import FILE

from hf.models import tiny
from hf.traces import logits

accelerate = pytest.importorskip("accelerate")
peft = pytest.importorskip("peft")
datasets = pytest.importorskip("datasets")

# peft and Trainer still say what transformers now calls activation checkpointing.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")
TEXT = "rerope:window=8+log_n"
LEARNING = "biases.kerple_log"
IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
CLOSE = {"rtol": 0, "atol": 1e-4}


@pytest.fixture
def texts():
    rows = torch.randint(3, 97, (8, 48), generator=torch.Generator().manual_seed(1)).tolist()
    return datasets.Dataset.from_dict({"input_ids": rows, "labels": rows})


def small(layers=2):
    return tiny("llama", num_hidden_layers=layers)


def trainer(model, texts, folder, **given):
    usual = {"max_steps": 4, "per_device_train_batch_size": 2, "learning_rate": 1e-2, "report_to": [], "use_cpu": True}
    quiet = {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "dataloader_pin_memory": False}
    arguments = TrainingArguments(output_dir=str(folder), **{**usual, **quiet, **given})
    return Trainer(model=model, args=arguments, train_dataset=texts)


def by_hand(model, texts, steps=4):
    """What Trainer does, without it: AdamW, a rate that falls to nothing in a line, gradients clipped at 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    rows = torch.tensor(texts["input_ids"]).view(-1, 2, 48)
    model.train()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / steps)
        model(input_ids=rows[step], labels=rows[step], use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", [TEXT, LEARNING, "dynamic_yarn"])
@pytest.mark.parametrize("given", [{}, {"gradient_checkpointing": True}], ids=["plain", "checkpoints"])
def test_trainer_trains_as_by_hand(tmp_path, texts, text, given):
    model, alone = small(), small()
    with extended(model, text), extended(alone, text):
        by_hand(alone, texts)
        trainer(model, texts, tmp_path, train_sampling_strategy="sequential", **given).train()
        before = logits(small(), IDS)
        model.eval()
        torch.testing.assert_close(logits(model, IDS), logits(alone, IDS), rtol=0, atol=1e-2)
        assert not torch.allclose(logits(model, IDS), before, atol=1.0)


def test_trainer_in_half_precision(tmp_path, texts):
    model = small()
    with extended(model, TEXT):
        own = trainer(model, texts, tmp_path, bf16=True, max_steps=8)
        first = own.evaluate(texts)["eval_loss"]
        own.train()
        assert own.evaluate(texts)["eval_loss"] < first - 0.1
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3", "gpt_neox"])
def test_in_half_precision_the_turn_that_is_left_out_widens_nothing_and_loses_nothing(name, monkeypatch):
    def under(dtype):
        model = tiny(name, num_hidden_layers=2)
        with extended(model, "dynamic_yarn"), torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            cos, sin = model.base_model.rotary_emb(torch.zeros(1, 4, 64), torch.arange(4)[None])
            assert cos.dtype == sin.dtype == dtype
            return logits(model, IDS)

    narrow = under(torch.bfloat16)
    wide = lambda module, args, given, turn: (torch.ones_like(turn[0]), torch.zeros_like(turn[1]))  # noqa: E731
    monkeypatch.setattr(attention, "identity_rotation", wide)
    assert torch.equal(under(torch.float32), narrow)


@pytest.mark.nightly
@pytest.mark.parametrize("text", [TEXT, LEARNING])
def test_trainer_goes_on_where_it_was_stopped(tmp_path, texts, text):
    saving = {"save_strategy": "steps", "save_steps": 2, "train_sampling_strategy": "sequential"}
    whole, halted = small(), small()
    with extended(whole, text), extended(halted, text):
        trainer(whole, texts, tmp_path / "whole", **saving).train()
        checkpoint = tmp_path / "whole" / "checkpoint-2"
        assert (checkpoint / FILE).exists()
        trainer(halted, texts, tmp_path / "halted", **saving).train(resume_from_checkpoint=str(checkpoint))
        for (name, one), other in zip(whole.named_parameters(), halted.parameters(), strict=True):
            torch.testing.assert_close(one, other, msg=name)
        expected = logits(whole.eval(), IDS)
    again = load(tmp_path / "whole" / "checkpoint-4").eval()
    torch.testing.assert_close(logits(again, IDS), expected, **CLOSE)


def test_what_accelerate_prepares(texts, monkeypatch):
    monkeypatch.setattr(accelerate.state.AcceleratorState, "_shared_state", {})  # or the precision of an earlier test
    model, alone = small(), small()
    rows = torch.tensor(texts["input_ids"][:2])
    with extended(model, TEXT), extended(alone, TEXT):
        tool = accelerate.Accelerator(cpu=True)
        prepared, optimizer = tool.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        tool.backward(prepared(input_ids=rows, labels=rows, use_cache=False).loss)
        optimizer.step()
        alone(input_ids=rows, labels=rows, use_cache=False).loss.backward()
        torch.optim.SGD(alone.parameters(), lr=0.1).step()
        assert torch.equal(logits(prepared, IDS), logits(alone, IDS))
        assert tool.unwrap_model(prepared) is model


def adapter():
    return peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def grown(model):
    """Adapters begin at nothing; these do not."""
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(generator=torch.Generator().manual_seed(7)).mul_(0.1)
    return model


def definition(tmp_path):
    """The answer of a model whose weights have the adapter in them, extended."""
    torch.manual_seed(5)
    merged = grown(peft.get_peft_model(small(), adapter())).merge_and_unload()
    with extended(merged, TEXT):
        return logits(merged, IDS)


@pytest.mark.parametrize("first", ["extended, then adapted", "adapted, then extended"])
def test_an_adapter_and_an_extension(tmp_path, first):
    expected = definition(tmp_path)
    torch.manual_seed(5)
    small().save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    before = logits(model, IDS)
    if first == "extended, then adapted":
        handle = extend(model, TEXT)
        adapted = grown(peft.get_peft_model(model, adapter()))
    else:
        adapted = grown(peft.get_peft_model(model, adapter()))
        handle = extend(adapted, TEXT)
    torch.testing.assert_close(logits(adapted, IDS), expected, **CLOSE)
    given = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    with torch.no_grad():
        cached = adapted.generate(input_ids=IDS, **given)
        assert cached.tolist() == adapted.generate(input_ids=IDS, use_cache=False, **given).tolist()
    adapted.save_pretrained(tmp_path / "adapter")
    torch.testing.assert_close(logits(adapted.merge_and_unload(), IDS), expected, **CLOSE)
    handle.remove()
    with pytest.raises(KeyError, match=SENTENCE):
        peft.PeftModel.from_pretrained(small(), tmp_path / "adapter")
    again = load(tmp_path / "adapter")
    torch.testing.assert_close(logits(again, IDS), expected, **CLOSE)
    handle_of(again).remove()
    with again.disable_adapter():
        torch.testing.assert_close(logits(again, IDS), before, **CLOSE)


def test_an_adapter_is_trained_and_nothing_else(tmp_path, texts):
    small().save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    adapted = peft.get_peft_model(model, adapter())
    with extended(adapted, TEXT):
        own = trainer(adapted, texts, tmp_path, max_steps=8, save_strategy="steps", save_steps=8)
        first = own.evaluate(texts)["eval_loss"]
        own.train()
        assert own.evaluate(texts)["eval_loss"] < first
        expected = logits(adapted.eval(), IDS)
    torch.testing.assert_close(logits(load(tmp_path / "checkpoint-8"), IDS), expected, **CLOSE)
    state = adapted.state_dict().items()
    kept = {name.replace(".base_layer", "").removeprefix("base_model.model."): value for name, value in state}
    assert all(torch.equal(kept[name], value) for name, value in before.items())
