"""Ways to train an extended model: adapters, learned biases, activations computed twice, compiled."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

import ropewalk as rw
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train

from hf.models import tiny
from train.texts import tokenizer, tokens
from train.watching import StopAt, losses

SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)
PLAN = TrainingPlan(steps=6, rows=4, save_every=50, log_every=1, progress=False, learning_rate=1e-2)


def run(path, model, name, *callbacks, plan=PLAN, **more):
    rows = PackedRows(tokens(path, count=20), tokenizer(), length=32, count=400)
    return train(model, rows, plan, path / name, callbacks=callbacks, **more)


def adapted(path):
    """A checkpoint from disk with adapters."""
    place = path / "pretrained"
    if not place.exists():
        new_small_model(SMALL, seed=4).save_pretrained(place)
    torch.manual_seed(1)
    model = type(new_small_model(SMALL)).from_pretrained(place)
    return get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


@pytest.mark.sampled(cases=1)
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
@pytest.mark.parametrize("extension", [None, "rerope:window=8"])
def test_adapters_alone_are_trained_and_saved_and_go_on(tmp_path, extension):
    def made():
        model = adapted(tmp_path)
        if extension:
            rw.extend(model, extension)
        return model

    whole = run(tmp_path, made(), "whole")
    run(tmp_path, made(), "cut", StopAt(3))
    kept = load_file(tmp_path / "cut" / "checkpoint-3" / "adapter_model.safetensors")
    assert all("lora" in name for name in kept)
    assert len(kept) == 2 * 2 * 2
    assert not (tmp_path / "cut" / "checkpoint-3" / "model.safetensors").exists()
    assert losses(run(tmp_path, made(), "cut")) == losses(whole)
    base, after = new_small_model(SMALL, seed=4).state_dict(), whole.model.get_base_model().state_dict()
    for name, value in base.items():
        assert torch.equal(value, after.get(name, after.get(name.replace(".weight", ".base_layer.weight")))), name


@pytest.mark.nightly
def test_learned_biases_go_on(tmp_path):
    def made():
        model = new_small_model(SMALL)
        rw.extend(model, "kerple")
        return model

    whole = run(tmp_path, made(), "whole")
    run(tmp_path, made(), "cut", StopAt(3))
    again = run(tmp_path, made(), "cut")
    assert losses(again) == losses(whole)
    learned = {name: value for name, value in again.model.named_parameters() if "ropewalk" in name}
    assert len(learned) == 4
    first = dict(made().named_parameters())
    assert all(not torch.equal(value, first[name]) for name, value in learned.items())


@pytest.mark.parametrize("extension", ["rerope:window=8", "kerple", "hwfa:window=8", "dynamic_ntk"])
def test_computing_activations_twice_changes_no_gradient(extension):
    model = tiny("llama").train()
    ids = torch.arange(96).reshape(2, 48) * 7 % 101
    grads = []
    with rw.extended(model, extension):
        for twice in (False, True):
            if twice:
                model.activation_checkpointing_enable()
            model.zero_grad()
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            grads.append({name: value.grad.clone() for name, value in model.named_parameters()})
    assert model.is_activation_checkpointing
    for name, expected in grads[0].items():
        torch.testing.assert_close(grads[1][name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's tracer
def test_compiled(tmp_path):
    """By all of torch.compile except the generator of code, which takes a minute."""

    def made():
        model = new_small_model(SMALL)
        rw.extend(model, "rerope:window=8")
        return model

    short = {**vars(PLAN), "steps": 3}
    plain = losses(run(tmp_path, made(), "plain", plan=TrainingPlan(**short)))
    plan = TrainingPlan(**{**short, "compile": True})
    compiled = losses(run(tmp_path, made(), "compiled", plan=plan, torch_compile_backend="aot_eager"))
    assert compiled == pytest.approx(plain, abs=1e-4)
