"""Problems of attention, and how close an answer must be to the oracle's."""

from dataclasses import replace

import pytest
import torch

from ropewalk import Extension, parse, reference_attention
from ropewalk.attention import attend
from ropewalk.methods.reach import Causal

from examples import EXAMPLES, FACTS

SINGLE = [
    Extension(**{slot: (spec,) if slot in ("biases", "scales") else spec})
    for slot in ("frequencies", "reach", "biases", "scales", "positions")
    for spec in EXAMPLES[slot]
]

MIXED = [
    "dynamic_yarn+rerope:window=5+log_n",
    "alibi+streaming:window=6,n_sink=2",
    "yarn:factor=4+self_extend:window=5,group=3+scales.head_scale",
    "biases.kerple_log+biases.sandwich+window:window=9",
    "xpos+bca:block=8",
    "dynamic_ntk+streaming:window=6,n_sink=2",
    "yarn:factor=4+string:shift=6,local=2",
    "string:shift=6,local=2+log_n+biases.alibi",
    "dynamic_yarn+self_logistic:window=8,capacity=5,rate=0.3+log_n",
    "yarn:factor=4+lampe:head=6,tail=3,length=60,mapped=20+biases.alibi",
    "dynamic_yarn+biases.alibi+window:window=20",
    # By fused kernels, where the bias is that of a whole part of a row, and otherwise.
    "rerope:window=9+far_discount:window=9+log_n:strength=1.5",
    "dynamic_yarn+leaky_rerope:window=7,leak=3+far_discount:window=7,strength=0.8",
    "rerope_by_parts:window=9,leak=4+far_discount:window=9+biases.alibi",
    "self_extend:window=7,group=3+far_discount:window=5",
]

# Heads of a layer that differ: those that keep all keys beside others, a schedule of their own, learned numbers.
BY_HEAD = [
    replace(parse("streaming:window=6,n_sink=2"), heads={1: Extension(reach=Causal())}),
    replace(parse("yarn:factor=4+log_n"), heads={0: parse("ntk:factor=2"), 1: parse("pi:factor=3")}),
    replace(parse("rerope:window=5+scales.head_scale+biases.kerple_log"), heads={-2: parse("window:window=9")}),
    replace(parse("biases.alibi+biases.sandwich"), heads={1: parse("dynamic_ntk+self_extend:window=5,group=3")}),
]

EVERY = [*SINGLE, *(parse(text) for text in MIXED), *BY_HEAD]


every = pytest.mark.parametrize(
    "extension", EVERY, ids=lambda extension: "+".join(str(s) for g in extension.specs.values() for s in g)
)

# Relative to the largest answer; float64 shows that the mathematics is the same, the others what rounding leaves.
CLOSE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2}


def tensors(length, facts=FACTS, batch=1, queries=None, dtype=torch.float64, seed=0):
    rng = torch.Generator().manual_seed(seed)
    sizes = [(facts.heads, queries or length), (facts.groups, length), (facts.groups, length)]
    return [torch.randn(batch, heads, n, facts.head_dim, generator=rng).to(dtype) for heads, n in sizes]


def learned(extension, facts=FACTS):
    """What the extension learned, and the sinks and factors of a model that has them."""
    rng = torch.Generator().manual_seed(7)
    of_model = {"sinks": torch.randn(facts.heads, generator=rng)} if facts.sinks else {}
    of_model |= {"after_rotation": 0.5 + torch.rand(facts.head_dim, generator=rng)} if facts.weighted else {}
    return {**extension.weights(facts, rng), **({"model": of_model} if of_model else {})}


def assert_equal(extension, tensors, facts=FACTS, **kwargs):
    """Outputs and gradients of queries, keys and values, against the oracle on the same numbers."""
    fast, slow = ([x.detach().clone().requires_grad_() for x in tensors] for _ in range(2))
    weights = learned(extension, facts)
    got = attend(*fast, extension, facts, weights=weights, **kwargs)
    expected = reference_attention(*slow, extension, facts, weights=weights, **kwargs)
    assert got.dtype == tensors[0].dtype
    assert got.shape == expected.shape
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got.backward(slope.to(got.dtype))
    expected.backward(slope)
    pairs = [(got, expected), *((one.grad, other.grad) for one, other in zip(fast, slow, strict=True))]
    for one, other in pairs:
        one, other = one.detach().double(), other.detach().double()
        error = (one - other).abs().max()
        assert error <= CLOSE[got.dtype] * max(1.0, float(other.abs().max())), float(error)
