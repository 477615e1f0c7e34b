"""What the model adds to the softmax, in every backend: a cap on logits and sinks, under every method."""

import dataclasses
import functools
import math

import pytest
import torch

from ropewalk import Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import CacheState, attend, cache_for, explain
from ropewalk.extension.inputs import PAD

from attention.problems import CLOSE, EVERY, assert_equal, every, learned, tensors
from examples import FACTS

# Random logits are about 1 in size, so that such a cap bends them well.
MODELS = {
    "capped": dataclasses.replace(FACTS, softcap=1.5),
    "with sinks": dataclasses.replace(FACTS, sinks=True),
    "both": dataclasses.replace(FACTS, softcap=1.5, sinks=True),
}
each_model = pytest.mark.parametrize("facts", MODELS.values(), ids=MODELS)
ABROAD = ["rope", "rerope:window=5", "window:window=9", "streaming:window=6,n_sink=2", "alibi", "biases.t5", "fire"]


@pytest.mark.sampled
@every
@each_model
def test_equals_the_oracle_in_float64(extension, facts):
    assert_equal(extension, tensors(63, facts), facts)


@pytest.mark.sampled(cases=23)
@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equals_the_oracle_in_the_models_precision(extension, dtype):
    assert_equal(extension, tensors(97, dtype=dtype), MODELS["both"])
    assert_equal(extension, tensors(97, dtype=dtype), MODELS["with sinks"])


@pytest.mark.sampled
@pytest.mark.parametrize("text", ABROAD)
@each_model
def test_padding_and_packing(text, facts):
    positions, documents = torch.full((2, 60), PAD), torch.tensor([[0] * 30 + [1] * 30, [5] * 60])
    positions[0], positions[1, 25:] = torch.arange(60), torch.arange(35)
    x = tensors(60, batch=2)
    assert_equal(parse(text), x, facts, tokens=Tokens(documents_bj=documents))
    for tensor in x:
        tensor.movedim(2, 1)[positions == PAD] = 0.0
    assert_equal(parse(text), x, facts, tokens=Tokens(positions))


@pytest.mark.sampled
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("text", ["rerope:window=7", "biases.alibi"])
def test_grouped_heads(groups, text):
    facts = Facts(trained_len=16, head_dim=8, heads=8, kv_heads=groups, softcap=1.5, sinks=True)
    for model in (facts, dataclasses.replace(facts, softcap=None)):
        assert_equal(parse(text), tensors(65, model, batch=2), model)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", ["biases.alibi", "biases.kerple_log", "rerope:window=300", "window:window=200"])
@pytest.mark.parametrize("capped", [None, 1.5])
def test_texts_of_many_blocks(text, capped):
    """Long enough for far keys to be left out where a bias falls steeply."""
    facts = Facts(trained_len=512, head_dim=16, heads=2, softcap=capped, sinks=True)
    assert_equal(parse(text), tensors(1600, facts, dtype=torch.float32), facts)


def slopes(way, extension, facts, x):
    """The gradients of sinks, of learned biases and scales, and of the vectors."""
    weights = learned(extension, facts)
    leaves = [value.requires_grad_() for group in weights.values() for value in group.values()]
    leaves += [tensor.detach().clone().requires_grad_() for tensor in x]
    way(*leaves[-3:], extension, facts, weights=weights).double().square().sum().backward()
    return [leaf.grad.double() for leaf in leaves]


def assert_learns(extension, facts, x):
    for one, other in zip(*(slopes(way, extension, facts, x) for way in (attend, reference_attention)), strict=True):
        assert float((one - other).abs().max()) <= CLOSE[x[0].dtype] * max(1.0, float(other.abs().max()))


@pytest.mark.sampled
@every
@pytest.mark.parametrize("name", ["with sinks", "both"])
def test_sinks_learn_as_the_oracles_do(extension, name):
    assert_learns(extension, MODELS[name], tensors(63, batch=2))


@pytest.mark.parametrize("text", ["rerope:window=5", "alibi", "biases.t5", "fire"])
def test_sinks_learn_in_the_models_precision(text):
    assert_learns(parse(text), MODELS["with sinks"], tensors(63, dtype=torch.float32))


def test_a_sink_takes_a_share_and_gives_nothing():
    """Against a text with one more key, of value zero, before the others."""
    q, k, v = tensors(20)
    sinks = torch.linspace(-1, 2, FACTS.heads)
    answer = functools.partial(attend, q, k, v, parse("nope"))
    got = answer(dataclasses.replace(FACTS, sinks=True), weights={"model": {"sinks": sinks}})
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    logit = (q @ k.mT / 4).masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf)
    weight = torch.softmax(torch.cat([sinks.double()[None, :, None, None].expand(1, 4, 20, 1), logit], -1), -1)
    torch.testing.assert_close(got, weight @ torch.cat([torch.zeros_like(v[:, :, :1]), v], 2))


def test_a_cap_bounds_what_a_key_can_weigh():
    """At 2, and all 19 others at -2."""
    q, k, v = (1000 * x for x in tensors(20))
    k[:, :, 0], v[:, :, 1:], v[:, :, 0] = q[:, ::2, 19], 0, 1
    for softcap, at_least, at_most in (
        (None, 0.999, 1.0),
        (2.0, 0.05, math.exp(2) / (math.exp(2) + 19 * math.exp(-2))),
    ):
        share = attend(q, k, v, parse("nope"), dataclasses.replace(FACTS, softcap=softcap))[0, 0, 19, 0]
        assert at_least <= float(share) <= at_most


@each_model
def test_rows_that_see_nothing_give_zeros(facts):
    positions = torch.full((1, 9), PAD)
    positions[0, 4:] = torch.arange(5)
    x = tensors(9)
    for text in ABROAD:
        out = attend(*x, parse(text), facts, Tokens(positions), weights=learned(parse(text), facts))
        assert not out[:, :, :4].any()
        assert out[:, :, 4:].isfinite().all()


CUTS = {"token by token": [1] * 60, "a prompt, then tokens": [23] + [1] * 37, "pieces": [20, 1, 17, 1, 1, 20]}


@pytest.mark.sampled(cases=12)
@pytest.mark.parametrize(
    "extension", [tensor for tensor in EVERY if tensor.positions_or_sequential.name == "sequential"], ids=str
)
@each_model
def test_a_cache_reads_the_same_in_any_chunks(extension, facts):
    begins = (0, -25)
    x, weights = tensors(60, batch=2), learned(extension, facts)
    positions = torch.stack([torch.arange(60) + begin for begin in begins]).clamp(min=PAD)
    expected = reference_attention(*x, extension, facts, Tokens(positions), weights=weights)
    for cuts in CUTS.values():
        cache = cache_for(CacheState(extension, facts, begins=begins, weights=weights))
        parts, first = [], 0
        for size in cuts:
            parts.append(cache.read(*(tensor[:, :, first : first + size] for tensor in x)))
            first += size
        torch.testing.assert_close(torch.cat(parts, 2), expected, rtol=0, atol=1e-11)


def test_the_backends_that_are_chosen():
    x, weights = tensors(100), learned(parse("alibi"), MODELS["both"])
    sunk = MODELS["with sinks"]
    assert ": flash: " in explain(*x, parse("rerope:window=5"), sunk, weights=weights)
    assert ": bias_diagonals: " in explain(*x, parse("alibi"), sunk, weights=weights)
    for text in ("rerope:window=5", "alibi"):
        said = explain(*x, parse(text), MODELS["both"], weights=weights)
        assert "dense: the fused kernels have no cap on logits (softcap 1.5)" in said


def test_sinks_have_to_be_given_and_to_be_known():
    x, sinks = tensors(5), {"model": {"sinks": torch.zeros(4)}}
    for way in (attend, reference_attention):
        with pytest.raises(InvalidValue, match="weights must be"):
            way(*x, parse("rope"), MODELS["with sinks"])
        with pytest.raises(InvalidValue, match="weights must be empty"):
            way(*x, parse("rope"), FACTS, weights=sinks)
        with pytest.raises(InvalidValue, match="weights must be"):
            way(*x, parse("rope"), MODELS["with sinks"], weights={"model": {"sinks": torch.zeros(2)}})
    with pytest.raises(InvalidValue, match="softcap must be above 0"):
        Facts(trained_len=8, head_dim=8, softcap=0.0)
