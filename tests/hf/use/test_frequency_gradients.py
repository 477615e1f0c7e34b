"""Slopes by backpropagation, against differences of losses."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

import ropewalk as rw
from ropewalk.hf.use.frequency_gradients import slopes
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.methods.frequencies import LongRoPE
from ropewalk.methods.scales import Temperature
from ropewalk.train.small_models import ModelShape, new_small_model

STEP = 3e-4  # a fast pair is then .03 rad further at the last token
DIVISORS = (1.0, 1.2, 2.0, 3.0)
IDS = torch.arange(90)[None] * 7 % 61


def llama():
    return sharp(new_small_model(ModelShape(vocabulary=61, width=32, inner=64, layers=2, heads=4, trained_len=32)))


def qwen3():
    torch.manual_seed(0)
    sizes = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 64, "head_dim": 8, "max_position_embeddings": 32}
    counts = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    return sharp(Qwen3ForCausalLM(Qwen3Config(**sizes, **counts)))


def sharp(model):
    for name, value in model.named_parameters():
        if "proj" in name:
            value.data *= 6
    return model.double().eval()


def schedule(divisors=DIVISORS, temperature=1.3):
    kept = LongRoPE(long=tuple(divisors), short=tuple(divisors))
    return rw.Extension(frequencies=kept, scales=(Temperature(value=temperature),))


def loss(model, extension):
    with rw.extended(model, extension):
        return token_losses(model, IDS).loss(40)


@pytest.mark.parametrize("made", [llama, qwen3])
def test_slopes_are_those_of_the_losses(made):
    model = made()
    with rw.extended(model, schedule()):
        found = slopes(model, IDS, last=40)
    for pair in range(len(DIVISORS)):
        faster, slower = (
            [each * ((1 + sign * STEP) if n == pair else 1) for n, each in enumerate(DIVISORS)] for sign in (-1, 1)
        )
        expected = (loss(model, schedule(faster)) - loss(model, schedule(slower))) / (2 * STEP)
        assert float(found.by_pair[pair]) == pytest.approx(expected, rel=2e-2, abs=2e-4)
    warmer, colder = (loss(model, schedule(temperature=1.3 * (1 + sign * STEP))) for sign in (1, -1))
    assert found.by_temperature == pytest.approx((warmer - colder) / (2 * STEP), rel=2e-2, abs=2e-4)


def test_nothing_is_left_behind():
    model = llama()
    before, state = model(IDS).logits, {name: value.clone() for name, value in model.named_buffers()}
    slopes(model, IDS, last=10)
    assert torch.equal(model(IDS).logits, before)
    assert all(torch.equal(value, state[name]) and not value.requires_grad for name, value in model.named_buffers())
    assert all(each.grad is None for each in model.parameters())
    assert "forward" not in model.model.rotary_emb.__dict__


def test_what_no_table_of_the_model_says_is_refused():
    model = llama()
    with rw.extended(model, "rerope:window=16"), pytest.raises(rw.DoesNotFit, match="gradients need mode tables"):
        slopes(model, IDS, last=10)
    with pytest.raises(rw.DoesNotFit, match="rotary"):
        slopes(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=61)), IDS, last=10)


@pytest.mark.parametrize(("ids", "last"), [(IDS, 0), (IDS, -5), (IDS, 90), (IDS[0], 10), (IDS[:, :1], 1)])
def test_what_is_refused(ids, last):
    with pytest.raises(rw.InvalidValue, match="last must be from 1"):
        slopes(llama(), ids, last=last)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_slopes_are_there_where_no_others_are_wanted(without):
    model = llama()
    expected = slopes(model, IDS, last=10)
    with without():
        found = slopes(model, IDS, last=10)
    assert torch.equal(found.by_pair, expected.by_pair)
