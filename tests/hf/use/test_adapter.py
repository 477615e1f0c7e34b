"""Adapters of peft under an extension: computed, merged, saved with the extension, loaded onto the base model."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.runtime.layer import PREFIX

from hf.models import tiny
from hf.traces import logits, trace

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore")  # peft's own

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
LINES = ["yarn:factor=4", "rerope:window=16", "kerple"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    tiny("llama", num_hidden_layers=2).save_pretrained(folder)
    return folder


@pytest.fixture
def base(place):
    return AutoModelForCausalLM.from_pretrained(place).eval()


def adapter(**values):
    return peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], **{"init_lora_weights": False, **values})


def adapted(base):
    torch.manual_seed(1)
    return peft.get_peft_model(base, adapter()).eval()


def learn(model):
    """Learned numbers other than those that an extension begins with."""
    for name, value in model.named_parameters():
        if PREFIX in name:
            value.data.add_(0.3)


@pytest.mark.parametrize("line", LINES)
def test_wrapped_before_or_after_and_switched_off(base, place, line):
    wrapped = adapted(base)
    plain, before = logits(wrapped, IDS), trace(wrapped.get_base_model(), numbers=False)
    other = AutoModelForCausalLM.from_pretrained(place).eval()
    rw.extend(other, line)
    alone = logits(other, IDS)
    with rw.extended(wrapped, line):
        expected = logits(wrapped, IDS)
        assert not torch.allclose(expected, plain)
        with wrapped.disable_adapter():
            assert torch.equal(logits(wrapped, IDS), alone)
        wrapped.add_adapter("two", adapter())
        wrapped.set_adapter("two")
        assert not torch.allclose(logits(wrapped.eval(), IDS), expected)
        wrapped.delete_adapter("two")
        wrapped.set_adapter("default")
        assert torch.equal(logits(wrapped.eval(), IDS), expected)
    assert torch.equal(logits(adapted(other), IDS), expected)
    assert torch.equal(logits(wrapped, IDS), plain)
    assert trace(wrapped.get_base_model(), numbers=False)["attributes"] == before["attributes"]


@pytest.mark.parametrize("line", LINES)
def test_merged_under_the_extension_it_is_saved_and_exported(base, tmp_path, line):
    wrapped = adapted(base)
    rw.extend(wrapped, line)
    learn(wrapped)
    expected = logits(wrapped, IDS)
    merged = wrapped.merge_and_unload()
    assert handle_of(merged) is not None
    torch.testing.assert_close(logits(merged, IDS), expected, rtol=0, atol=1e-3)
    assert rw.save(merged, tmp_path / "saved").startswith("transformers") == (line == "yarn:factor=4")
    torch.testing.assert_close(logits(rw.load(tmp_path / "saved").eval(), IDS), expected, rtol=0, atol=1e-3)
    exported = rw.export(merged, tmp_path / "served", target="vllm", target_len=128)
    assert exported.kind == ("native" if line == "yarn:factor=4" else "plugin")


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("early", [False, True])
def test_saved_as_an_adapter_with_its_extension(base, place, tmp_path, line, early):
    if early:
        rw.extend(base, line)
    wrapped = adapted(base)
    if not early:
        rw.extend(wrapped, line)
    learn(wrapped)
    expected = logits(wrapped, IDS)
    assert rw.save(wrapped, tmp_path / "saved").startswith("ropewalk.load")
    assert not (tmp_path / "saved" / "model.safetensors").exists()
    again = rw.load(tmp_path / "saved").eval()
    assert isinstance(again, peft.PeftModel)
    assert handle_of(again).extension == handle_of(wrapped).extension
    assert torch.equal(logits(again, IDS), expected)
    with pytest.raises(KeyError, match=r"load it with ropewalk\.load"):  # never without the extension
        peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(place), tmp_path / "saved")


def test_checkpoints_of_a_trainer_have_the_extension(base, tmp_path):
    wrapped = peft.get_peft_model(base, adapter(init_lora_weights=True))
    handle = rw.extend(wrapped, "kerple")
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(3, 97, (4, 40))]
    how = {"max_steps": 2, "save_steps": 2, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True}
    Trainer(wrapped, TrainingArguments(str(tmp_path), disable_tqdm=True, **how), train_dataset=rows).train()
    assert torch.equal(logits(rw.load(tmp_path / "checkpoint-2").eval(), IDS), logits(wrapped.eval(), IDS))
    handle.remove()
    assert "save_pretrained" not in wrapped.__dict__


@pytest.mark.parametrize("task", ["save", "export", "convert"])
def test_a_model_with_adapters_inside_is_refused(base, tmp_path, task):
    """What peft put into the model is not in transformers' weights."""
    base.add_adapter(adapter())
    tasks = {
        "save": lambda: rw.save(base, tmp_path / "out"),
        "export": lambda: rw.export(base, tmp_path / "out", target="vllm", target_len=128),
        "convert": lambda: rw.convert(base, "gqa:kv_heads=1"),
    }
    if task != "convert":
        rw.extend(base, "yarn:factor=4")
    with pytest.raises(rw.DoesNotFit, match="needs plain weights, and the model has adapters inside; merge"):
        tasks[task]()
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_loaded_again_is_not_saved(base, tmp_path):
    unnamed = adapted(tiny("llama", num_hidden_layers=2))
    rw.extend(unnamed, "yarn:factor=4")
    with pytest.raises(rw.InvalidValue, match="the adapter does not say of which model it is"):
        rw.save(unnamed, tmp_path / "out")
    wrapped = adapted(base)
    with pytest.raises(rw.InvalidValue, match="model must be under an extension"):
        rw.save(wrapped, tmp_path / "out")
    rw.extend(wrapped, "yarn:factor=4")
    with pytest.raises(rw.InvalidValue, match=r"merge the adapter first \(merge_and_unload\), then extend"):
        rw.export(wrapped, tmp_path / "out", target="vllm", target_len=128)
    wrapped.add_adapter("two", adapter())
    with pytest.raises(rw.InvalidValue, match="writes one adapter, named default, and the model has default, two"):
        rw.save(wrapped, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_broken_adapter_is_one_error(base, tmp_path):
    wrapped = adapted(base)
    rw.extend(wrapped, "yarn:factor=4")
    rw.save(wrapped, tmp_path / "saved")
    (tmp_path / "saved" / "adapter_model.safetensors").write_bytes(b"broken")
    with pytest.raises(rw.Unreadable, match="adapter must be one that peft loads"):
        rw.load(tmp_path / "saved")
