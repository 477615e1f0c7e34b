"""Adapters of every kind on an extended model, saved in every way: their extension goes with them."""

import copy
import json
import pickle
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.closed_config import SENTENCE

from hf.models import tiny
from hf.traces import logits

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore")  # peft's own

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
LINES = ["yarn:factor=4", "rerope:window=16", "kerple"]
MODELS = ["llama", "qwen3", "gemma3_text", "phi3", "glm4"]
TASK = {"task_type": "CAUSAL_LM"}


def lora(**values):
    return peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, **{**TASK, **values})


KINDS = {
    "lora": lambda model: peft.get_peft_model(model, lora()),
    "named": lambda model: peft.get_peft_model(model, lora(), adapter_name="two"),
    "ia3": lambda model: peft.get_peft_model(
        model, peft.IA3Config(target_modules=["o_proj"], feedforward_modules=[], init_ia3_weights=False, **TASK)
    ),
    "prompt": lambda model: peft.get_peft_model(model, peft.PromptTuningConfig(num_virtual_tokens=4, **TASK)),
    "inside": lambda model: (model.add_adapter(lora()), model)[1],
}


@pytest.fixture(scope="module", params=MODELS)
def place(request, tmp_path_factory):
    return saved_base(request.param, tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return saved_base("llama", tmp_path_factory.mktemp("llama"))


def saved_base(name, place):
    tiny(name, num_hidden_layers=2).save_pretrained(place)
    return place


def opened(place):
    return AutoModelForCausalLM.from_pretrained(place).eval()


def folder_of(kind, place):
    return place / "two" if kind == "named" else place


def require_carried(folder, expected, base):
    """The extension comes back with the adapter, and nothing loads the adapter without it."""
    again = rw.load(folder).eval()
    assert handle_of(again) is not None
    assert torch.equal(logits(again, IDS), expected)
    for load in (
        lambda: peft.PeftModel.from_pretrained(opened(base), folder),
        lambda: peft.AutoPeftModelForCausalLM.from_pretrained(folder),
        lambda: AutoModelForCausalLM.from_pretrained(folder),
        lambda: opened(base).load_adapter(folder),
    ):
        with pytest.raises((KeyError, ValueError), match=r"load it with ropewalk\.load"):
            load()


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("text", LINES)
def test_extended_then_adapted_and_saved_at_once(place, tmp_path, text):
    model = opened(place)
    rw.extend(model, text)
    wrapped = KINDS["lora"](model)
    wrapped.save_pretrained(tmp_path)  # before the first forward
    require_carried(tmp_path, logits(wrapped.eval(), IDS), place)


@pytest.mark.parametrize("kind", ["lora", "inside"])
def test_after_a_forward_a_config_alone_brings_the_extension(llama, tmp_path, kind):
    """Trainers of reinforcement write the configs of adapters by themselves, beside weights that they gather."""
    model = opened(llama)
    rw.extend(model, "rerope:window=16")
    wrapped = KINDS[kind](model).eval()
    logits(wrapped, IDS)
    (config,) = wrapped.peft_config.values()
    config.save_pretrained(tmp_path)
    assert "rerope" in (tmp_path / "ropewalk.json").read_text()


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("first", ["extended", "adapted", "adapted, then the model inside extended"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_order(llama, tmp_path, kind, first):
    torch.manual_seed(1)
    model = opened(llama)
    if first == "extended":
        rw.extend(model, "kerple")
    wrapped = KINDS[kind](model).eval()
    if first != "extended":
        rw.extend(wrapped if first == "adapted" else model, "kerple")
    expected = logits(wrapped, IDS)
    for number in range(2):
        wrapped.save_pretrained(tmp_path / str(number))
        require_carried(folder_of(kind, tmp_path / str(number)), expected, llama)


@pytest.mark.nightly
@pytest.mark.parametrize("text", LINES)
@pytest.mark.parametrize("first", ["extended", "adapted"])
def test_checkpoints_of_a_trainer(llama, tmp_path, text, first):
    """In any order the extension is in the checkpoints, and a trainer goes on from them."""
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(3, 97, (8, 40))]
    how = {"save_steps": 1, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True, "disable_tqdm": True}

    def trainer(folder, steps):
        model = opened(llama)
        if first == "extended":
            rw.extend(model, text)
        wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], **TASK))
        if first == "adapted":
            rw.extend(wrapped, text)
        return Trainer(wrapped, TrainingArguments(str(folder), max_steps=steps, **how), train_dataset=rows)

    own = trainer(tmp_path / "run", 2)
    own.train()
    own.save_model(tmp_path / "model")
    expected = logits(own.model.eval(), IDS)
    for folder in (tmp_path / "run" / "checkpoint-2", tmp_path / "model"):
        require_carried(folder, expected, llama)
    longer = trainer(tmp_path / "longer", 3)
    longer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert longer.state.global_step == 3
    require_carried(tmp_path / "longer" / "checkpoint-3", logits(longer.model.eval(), IDS), llama)


@pytest.mark.parametrize("text", LINES)
def test_merged_and_saved_by_transformers(llama, tmp_path, text):
    model = opened(llama)
    rw.extend(model, text)
    merged = KINDS["lora"](model).merge_and_unload().eval()
    expected = logits(merged, IDS)
    merged.save_pretrained(tmp_path)
    torch.testing.assert_close(logits(rw.load(tmp_path).eval(), IDS), expected, rtol=1e-4, atol=1e-4)
    assert (tmp_path / "ropewalk.json").exists() == (text != "yarn:factor=4")


def test_a_config_that_serves_other_models_too_is_left_as_it_was(llama, tmp_path):
    config, model, other = lora(), opened(llama), opened(llama)
    handle = rw.extend(model, "kerple")
    wrapped = peft.get_peft_model(model, config)
    for _ in range(2):
        wrapped.save_pretrained(tmp_path / "extended")
        logits(wrapped, IDS)
        peft.get_peft_model(other, config).save_pretrained(tmp_path / "plain")
        assert not (tmp_path / "plain" / "ropewalk.json").exists()
        other = peft.PeftModel.from_pretrained(opened(llama), tmp_path / "plain").unload()
        assert (tmp_path / "extended" / "ropewalk.json").exists()
        shutil.rmtree(tmp_path / "plain")
    assert wrapped.peft_config["default"] is not config
    handle.remove()
    assert wrapped.peft_config["default"] is config
    assert "save_pretrained" not in vars(config)


def test_a_copied_config_writes_what_it_holds(llama, tmp_path):
    """peft copies a config where it converts weights, and then saves the copy."""
    model = opened(llama)
    rw.extend(model, "kerple")
    wrapped = peft.get_peft_model(model, lora())
    logits(wrapped, IDS)
    changed = copy.deepcopy(wrapped.peft_config["default"])
    changed.r = 8
    changed.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (written["r"], written["peft_type"]) == (8, SENTENCE)
    pickle.loads(pickle.dumps(wrapped.peft_config["default"])).save_pretrained(tmp_path / "elsewhere")
    assert json.loads((tmp_path / "elsewhere" / "adapter_config.json").read_text())["peft_type"] == "LORA"


def test_after_removal_an_adapter_is_saved_without_an_extension(llama, tmp_path):
    model = opened(llama)
    handle = rw.extend(model, "kerple")
    wrapped = KINDS["lora"](model)
    logits(wrapped, IDS)
    handle.remove()
    wrapped.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(opened(llama), tmp_path).eval()
    assert torch.equal(logits(again, IDS), logits(wrapped.eval(), IDS))


def test_an_adapter_of_a_saved_extended_model_brings_its_extension(llama, tmp_path):
    """Also where the adapter's folder has none of its own, as an older version wrote it."""
    model = opened(llama)
    rw.extend(model, "kerple")
    rw.save(model, tmp_path / "base")
    wrapped = KINDS["lora"](rw.load(tmp_path / "base")).eval()
    expected = logits(wrapped, IDS)
    wrapped.save_pretrained(tmp_path / "adapter")
    assert torch.equal(logits(rw.load(tmp_path / "adapter").eval(), IDS), expected)
    for name in ("ropewalk.json", "ropewalk.safetensors"):
        (tmp_path / "adapter" / name).unlink()
    assert torch.equal(logits(rw.load(tmp_path / "adapter").eval(), IDS), expected)


def test_an_adapter_that_names_no_model_is_loaded_when_it_does(llama, tmp_path):
    model = tiny("llama", num_hidden_layers=2)
    rw.extend(model, "kerple")
    wrapped = KINDS["lora"](model).eval()
    wrapped.save_pretrained(tmp_path)
    with pytest.raises(rw.Unreadable, match="does not say of which model the adapter is; write"):
        rw.load(tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "base_model_name_or_path": str(llama)}))
    assert torch.equal(logits(rw.load(tmp_path).eval(), IDS), logits(wrapped, IDS))


@pytest.mark.parametrize("how", [copy.deepcopy, pickle.dumps])
def test_no_copy_of_a_wrapped_model_is_without_its_extension(llama, how):
    model = opened(llama)
    rw.extend(model, "kerple")
    for whole in (KINDS["lora"](model), torch.nn.ModuleList([model])):
        with pytest.raises(rw.InvalidValue, match="a model under an extension cannot be copied or pickled"):
            how(whole)
