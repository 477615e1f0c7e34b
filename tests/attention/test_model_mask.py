"""What a model's layer adds to its logits by itself: `attend` equals the oracle, and the oracle equals torch."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ropewalk import Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import attend, explain
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import PAD
from ropewalk.methods.frequencies import NoPE

FACTS = Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2, original_len=None)
CLOSE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2}
LINES = [
    "rope",
    "rerope:window=5",
    "dynamic_yarn",  # a table for every row: more than are computed at once
    "dynamic_yarn+rerope:window=5+log_n",
    "alibi+streaming:window=6,n_sink=2",
    "self_extend:window=5,group=3",
    "bca:block=8",
    "xpos",
]


def drawn(length, queries, *, batch=1, heads=1, dtype=torch.float64, seed=0):
    """Queries, keys, values and a mask: a third of the keys hidden, anything added to the others."""
    rng = torch.Generator().manual_seed(seed)
    sizes = [(FACTS.heads, queries), (FACTS.groups, length), (FACTS.groups, length)]
    tensors = [torch.randn(batch, count, n, FACTS.head_dim, generator=rng).to(dtype) for count, n in sizes]
    mask = 3 * torch.randn(batch, heads, queries, length, generator=rng)
    hidden = torch.rand(batch, heads, queries, length, generator=rng) < 0.3
    return [*tensors, mask.masked_fill(hidden, -torch.inf).to(dtype)]


def assert_equal(line, tensors, **kwargs):
    """Outputs and gradients, those of the mask too."""
    extension = parse(line)
    weights = extension.weights(FACTS, torch.Generator().manual_seed(7))
    fast, slow = ([x.detach().clone().requires_grad_() for x in tensors] for _ in range(2))
    got = attend(*fast[:3], extension, FACTS, weights=weights, model_mask_bhij=fast[3], **kwargs)
    expected = reference_attention(*slow[:3], extension, FACTS, weights=weights, model_mask_bhij=slow[3], **kwargs)
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got.backward(slope.to(got.dtype))
    expected.backward(slope)
    for one, other in [(got, expected), *((a.grad, b.grad) for a, b in zip(fast, slow, strict=True))]:
        error = (one.detach().double() - other.detach().double()).abs().max()
        assert error <= CLOSE[got.dtype] * max(1.0, float(other.detach().abs().max())), float(error)


@pytest.mark.sampled
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(("length", "queries"), [(1, 1), (63, 63), (150, 150), (140, 7), (90, 1)])
@pytest.mark.parametrize("heads", [1, FACTS.heads])
def test_equals_the_oracle(line, length, queries, heads):
    assert_equal(line, drawn(length, queries, heads=heads, seed=length))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equals_the_oracle_in_the_models_precision(dtype):
    assert_equal("rerope:window=5", drawn(97, 97, heads=FACTS.heads, dtype=dtype))


@pytest.mark.parametrize("line", ["rerope:window=5", "dynamic_yarn", "streaming:window=6,n_sink=2"])
def test_padded_rows_packed_texts_and_equal_rows_have_their_own_masks(line):
    positions = torch.stack([torch.arange(40), torch.arange(40), torch.arange(40) - 9, torch.arange(40)])
    positions[2, :9] = PAD
    positions[3, 25:] = torch.arange(15)
    documents = torch.zeros(4, 40, dtype=torch.long)
    documents[3, 25:] = 1
    for queries in (40, 20):
        tensors = drawn(40, queries, batch=4, heads=FACTS.heads)
        assert_equal(line, tensors, tokens=Tokens(positions, documents_bj=documents))


@pytest.mark.parametrize("heads", [1, FACTS.heads])
def test_the_oracle_adds_what_torch_adds(heads):
    q, k, v, mask = drawn(41, 41, batch=2, heads=heads)
    mask[..., 0] = 0  # every row sees a key
    causal = torch.full((41, 41), -torch.inf, dtype=torch.float64).triu(1)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask + causal, enable_gqa=True)
    got = reference_attention(q, k, v, Extension(frequencies=NoPE()), FACTS, model_mask_bhij=mask)
    torch.testing.assert_close(got, expected)


def test_a_row_whose_keys_are_all_hidden_gives_zeros():
    q, k, v, mask = drawn(40, 40)
    mask[:, :, 7] = -torch.inf
    for attention in (attend, reference_attention):
        out = attention(q, k, v, parse("rerope:window=5"), FACTS, model_mask_bhij=mask)
        assert out.isfinite().all()
        assert not out[:, :, 7].any()
        assert out[:, :, 8].any()


def test_explain_says_that_there_is_a_mask():
    q, k, v, mask = drawn(40, 40)
    assert "flash" in explain(q, k, v, parse("rerope:window=5"), FACTS)
    assert "dense: the model's layer adds a mask of its own" in explain(
        q, k, v, parse("rerope:window=5"), FACTS, model_mask_bhij=mask
    )


@pytest.mark.parametrize("of", [lambda mask: mask[..., :-1], lambda mask: mask[:, :, 1:], lambda mask: mask == 0])
def test_a_mask_that_is_not_one_number_a_pair_is_refused(of):
    q, k, v, mask = drawn(40, 40)
    for attention in (attend, reference_attention):
        with pytest.raises(InvalidValue, match=r"model_mask_bhij must be numbers of shape \[1, 4 heads or 1, 40, 40\]"):
            attention(q, k, v, parse("rerope:window=5"), FACTS, model_mask_bhij=of(mask))
