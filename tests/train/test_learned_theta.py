"""Learned frequencies: their gradient in float64, resuming, and the table that is left of them."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.hf.attach.handle import handle_of
from ropewalk.methods.frequencies import LongRoPE
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.learned_theta import ALPHA, LearnedTheta
from ropewalk.train.recipes.carry_on import CarryOnSettings, carry_on
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import CHECKPOINTING, TrainingPlan, train

from hf.models import tiny
from train.texts import folder_of, tokenizer, tokens
from train.watching import StopAt, losses

pytestmark = pytest.mark.nightly

SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)
PLAN = TrainingPlan(steps=6, rows=4, save_every=50, log_every=1, progress=False, learning_rate=1e-2)
IDS = torch.randint(5, 290, (1, 30), generator=torch.Generator().manual_seed(1))
STEP = 1e-5
LINES = ["rope", "yarn:factor=4", "abf:new_base=500000"]


class InDouble(LlamaRotaryEmbedding):
    """RoPE's cos and sin in float64 throughout; transformers rounds angles to float32."""

    @torch.no_grad()
    def forward(self, x, position_ids):
        angle = position_ids[:, :, None].double() * self.inv_freq.double()
        both = torch.cat([angle, angle], -1)
        return both.cos() * self.attention_scaling, both.sin() * self.attention_scaling


class NormInDouble(LlamaRMSNorm):
    """transformers takes roots in float32."""

    def forward(self, x):
        return self.weight * x * (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def sharp():
    """A model whose attention is not nearly uniform, so that it depends on the frequencies."""
    model = new_small_model(SMALL)
    for name, value in model.named_parameters():
        if "proj" in name:
            value.data *= 6
    return model


def learning(line="rope", model=None):
    model = model or sharp()
    rw.extend(model, line)
    return model, LearnedTheta(model)


def loss_of(model, ids=IDS):
    return cross_entropy(model(input_ids=ids, use_cache=False).logits[0, :-1], ids[0, 1:])


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("line", LINES[:2])
def test_the_gradient_is_the_difference_of_losses(line, checkpointed):
    model, _ = learning(line)
    model.double().train(checkpointed)
    module, parameter = model.model.rotary_emb, model.model.rotary_emb._parameters[ALPHA]
    module.__class__, module._buffers["inv_freq"] = InDouble, module.inv_freq.double()
    for norm in model.modules():
        norm.__class__ = NormInDouble if isinstance(norm, LlamaRMSNorm) else norm.__class__
    if checkpointed:
        getattr(model, f"{CHECKPOINTING}_enable")()
    parameter.data = torch.linspace(-0.3, 0.2, len(parameter)).double()
    loss_of(model).backward()
    assert 1e-3 < parameter.grad.norm() < 1  # below the clip
    for pair in range(len(parameter)):
        found = []
        for sign in (1, -1):
            parameter.data[pair] += sign * STEP
            with torch.no_grad():
                found.append(float(loss_of(model)))
            parameter.data[pair] -= sign * STEP
        assert float(parameter.grad[pair]) == pytest.approx((found[0] - found[1]) / (2 * STEP), rel=1e-5, abs=1e-9)


def test_a_large_gradient_is_clipped_by_itself():
    model, _ = learning()
    parameter = model.model.rotary_emb._parameters[ALPHA]
    (1000 * loss_of(model)).backward()
    large = parameter.grad.clone()
    parameter.grad = None
    loss_of(model).backward()
    assert float(large.norm()) == pytest.approx(1, rel=1e-5)
    assert float(parameter.grad.norm()) < 1
    torch.testing.assert_close(large, parameter.grad / parameter.grad.norm(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("line", LINES)
def test_at_first_nothing_changes_and_settled_nothing_changes_either(line):
    model = sharp()
    rw.extend(model, line)
    with torch.no_grad():
        before = model.eval()(IDS).logits
        theta = LearnedTheta(model)
        assert torch.equal(model(IDS).logits, before)
        model.model.rotary_emb._parameters[ALPHA].data = torch.linspace(-0.5, 0.3, len(theta.alpha))
        learned = model(IDS).logits
        assert (learned - before).abs().max() > 1e-3
        theta.settle()
        torch.testing.assert_close(model(IDS).logits, learned, rtol=0, atol=2e-5)
    assert ALPHA not in dict(model.model.rotary_emb.named_parameters())
    assert handle_of(model).extension.scales == rw.parse(line, trained_len=32).scales


def test_the_table_is_the_formula():
    """theta_i exp(alpha_i), of theta_i = 10,000^(-2i/16)."""
    model, theta = learning()
    alpha = torch.linspace(-0.5, 0.3, 8)
    model.model.rotary_emb._parameters[ALPHA].data = alpha
    expected = [10_000 ** (-2 * i / 16) * torch.e ** float(alpha[i]) for i in range(8)]
    theta.settle()
    assert model.model.rotary_emb.inv_freq.tolist() == pytest.approx(expected, rel=1e-6)
    divisors = handle_of(model).extension.frequencies
    assert isinstance(divisors, LongRoPE)
    assert divisors.long == divisors.short == pytest.approx([torch.e ** -float(one) for one in alpha], rel=1e-6)


def run(path, name, line="rope", step=None, plan=PLAN):
    model, theta = learning(line, new_small_model(SMALL))
    rows = PackedRows(tokens(path, count=20), tokenizer(), length=32, count=400)
    return train(model, rows, plan, path / name, callbacks=[StopAt(step), theta]), theta


@pytest.mark.parametrize("line", LINES)
def test_stopped_it_goes_on_and_every_checkpoint_is_whole(tmp_path, line):
    whole, theta = run(tmp_path, "whole", line)
    run(tmp_path, "cut", line, step=3)
    rest, again = run(tmp_path, "cut", line)
    assert losses(rest) == losses(whole)
    assert torch.equal(again.alpha, theta.alpha)
    assert theta.alpha.abs().min() > 1e-4
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "cut" / "checkpoint-6").eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(IDS).logits, rest.model.eval()(IDS).logits, rtol=0, atol=1e-4)


def test_weights_alone_decay(tmp_path):
    trainer, _ = run(tmp_path, "run", plan=replace(PLAN, steps=1))
    assert not any(ALPHA in name for name in trainer.get_decay_parameter_names(trainer.model))
    assert any(ALPHA in name for name, _ in trainer.model.named_parameters())


def carried(tmp_path, **settings):
    place = tmp_path / "short"
    if not place.exists():
        new_small_model(SMALL, end=tokenizer().eos_token_id).save_pretrained(place)
        tokenizer().save_pretrained(place)
    corpus = folder_of(tmp_path / "texts", count=12)
    settings = {"model": str(place), "corpus": corpus, "length": 64, "learn_theta": True, **settings}
    return carry_on(tmp_path / "run", CarryOnSettings(plan=PLAN, **settings))


def test_the_recipe_leaves_a_standard_checkpoint(tmp_path):
    done = carried(tmp_path, extension="yarn")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model").eval()
    assert plain.config.rope_parameters["rope_type"] == "longrope"
    assert plain.config.max_position_embeddings == 64
    with torch.no_grad():
        expected = done.eval()(IDS).logits
        torch.testing.assert_close(plain(IDS).logits, expected, rtol=0, atol=1e-4)
        torch.testing.assert_close(rw.load(tmp_path / "run" / "model").eval()(IDS).logits, expected, rtol=0, atol=1e-4)
    for engine in ("transformers", "vllm", "sglang"):
        checked = rw.check(str(tmp_path / "run" / "model"), engine=engine)
        assert checked.layers[0].engine.inv_freq.tolist() == pytest.approx(plain.model.rotary_emb.inv_freq.tolist())
    assert not any(ALPHA in name for name in plain.state_dict())


def test_what_cannot_be_learned_is_refused(tmp_path):
    with pytest.raises(Conflict, match='under an extension; extend it first; "rope" changes nothing'):
        LearnedTheta(new_small_model(SMALL))
    for line, words in {
        "rerope:window=8": "such as yarn, abf or rope",
        "nope": "8 pairs that do not rotate'; take a schedule",
    }.items():
        with pytest.raises(DoesNotFit, match=words):
            learning(line)
    gemma = tiny("gemma3_text")
    rw.extend(gemma, "rope")
    with pytest.raises(DoesNotFit, match="a single rotary module and a single table where they are learned"):
        LearnedTheta(gemma)
    model, _ = learning()
    with pytest.raises(Conflict, match="learned already; settle them first"):
        LearnedTheta(model)
    with pytest.raises(Conflict, match="leave lora out"):
        carried(tmp_path, extension="yarn", lora=4)
