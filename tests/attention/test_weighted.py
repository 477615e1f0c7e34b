"""Rotated queries with a factor for each dimension, in every backend, under every method, and through caches."""

import dataclasses

import pytest
import torch

from ropewalk import InvalidValue, parse, reference_attention
from ropewalk.attention import attend

from attention.cache.reading import CUTS, assert_reads
from attention.problems import CLOSE, assert_equal, every, learned, tensors
from examples import FACTS

WEIGHTED = dataclasses.replace(FACTS, weighted=True)


@pytest.mark.sampled
@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_equals_the_oracle(extension, dtype):
    assert_equal(extension, tensors(97, dtype=dtype), WEIGHTED)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text", ["rope", "rerope:window=7", "dynamic_yarn+log_n", "streaming:window=6,n_sink=2", "xpos", "biases.alibi"]
)
@pytest.mark.parametrize("facts", [WEIGHTED, dataclasses.replace(WEIGHTED, interleaved=True, rotary_dim=4, sinks=True)])
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_a_cache_reads_the_same_in_any_chunks(text, facts, cuts):
    assert_reads(parse(text), tensors(60, facts, batch=2), cuts, facts)


def test_they_learn_as_the_oracles_do():
    slopes = []
    for way in (attend, reference_attention):
        weights = learned(parse("rerope:window=7"), WEIGHTED)
        factor = weights["model"]["after_rotation"].double().requires_grad_()
        out = way(*tensors(40), parse("rerope:window=7"), WEIGHTED, weights={"model": {"after_rotation": factor}})
        out.double().square().sum().backward()
        slopes.append(factor.grad)
    assert float(slopes[1].abs().max()) > 1e-3
    torch.testing.assert_close(*slopes, rtol=0, atol=CLOSE[torch.float64] * float(slopes[1].abs().max()))


@pytest.mark.parametrize("weights", [{}, {"model": {"after_rotation": torch.ones(3)}}])
def test_what_the_facts_say_must_be_there(weights):
    with pytest.raises(InvalidValue, match="after_rotation"):
        attend(*tensors(4), parse("rope"), WEIGHTED, weights=weights)
