"""Tokens with several positions, as in images: each pair rotates by a position of its own, and the order decides."""

import cmath
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from ropewalk import DoesNotFit, Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import attend

from attention.agreement import require_agreement

FACTS = Facts(trained_len=16, head_dim=8, heads=2, kv_heads=1)
PAIRS = 4
TEXTS = [
    *("rope", "yarn:factor=4+log_n", "dynamic_yarn", "rerope:window=8", "streaming:window=8,n_sink=2"),
    *("self_extend:window=8,group=2", "alibi", "window:window=9", "lambda_mask:window=8,n_sink=2"),
]


def inputs(batch=1, queries=20, keys=20, seed=0):
    draw = torch.Generator().manual_seed(seed)
    sizes = ((batch, 2, queries, 8), (batch, 1, keys, 8), (batch, 1, keys, 8))
    return [torch.randn(*size, generator=draw).requires_grad_() for size in sizes]


@settings(deadline=None, max_examples=60)
@given(
    text=st.sampled_from(TEXTS),
    keys=st.integers(1, 40),
    share=st.floats(0.05, 1),
    highest=st.integers(0, 60),
    seed=st.integers(0, 99),
    padding=st.integers(0, 3),
)
def test_the_fast_paths_equal_the_definition(text, keys, share, highest, seed, padding):
    at = torch.randint(0, highest + 1, (2, keys, PAIRS), generator=torch.Generator().manual_seed(seed))
    numbers = torch.arange(keys).repeat(2, 1)
    numbers[1] = (numbers[1] - padding).clamp(min=-1)
    arguments = {"tokens": Tokens(numbers, pair_positions_bjp=at)}
    require_agreement(inputs(2, max(1, round(share * keys)), keys, seed), parse(text), FACTS, seed, **arguments)


@pytest.mark.parametrize("text", TEXTS)
def test_equal_positions_are_one_position(text):
    q, k, v = inputs()
    same = torch.arange(20)[None, :, None].expand(1, 20, PAIRS)
    tokens, expected = Tokens(pair_positions_bjp=same), reference_attention(q, k, v, parse(text), FACTS)
    assert torch.equal(reference_attention(q, k, v, parse(text), FACTS, tokens), expected)
    assert torch.allclose(attend(q, k, v, parse(text), FACTS, tokens).double(), expected, atol=1e-6)


@pytest.mark.parametrize(("text", "window"), [("rope", 10**6), ("rerope:window=5", 5)])
def test_the_definition_equals_a_sum_over_pairs(text, window):
    """Complex numbers, one query and key at a time: near keys at their pairs' distances, far ones at the window."""
    q, k, v = (x.detach().double() for x in inputs(queries=12, keys=12))
    at = torch.randint(0, 30, (1, 12, PAIRS), generator=torch.Generator().manual_seed(5))
    out = reference_attention(q, k, v, parse(text), FACTS, Tokens(pair_positions_bjp=at))
    for head in range(2):
        for i in range(12):
            logits = [logit(q[0, head, i], k[0, 0, j], at[0, i], at[0, j], i - j, window) for j in range(i + 1)]
            weight = torch.tensor(logits, dtype=torch.float64).softmax(0)
            assert torch.allclose(out[0, head, i], weight @ v[0, 0, : i + 1], atol=1e-9)


def logit(q, k, q_at, k_at, order, window):
    total = 0.0
    for pair in range(PAIRS):
        distance = int(q_at[pair] - k_at[pair]) if order < window else window
        one, other = complex(q[pair], q[pair + PAIRS]), complex(k[pair], k[pair + PAIRS])
        total += (one * other.conjugate() * cmath.exp(1j * distance * 10_000 ** (-pair / PAIRS))).real
    return total / math.sqrt(8)


@pytest.mark.parametrize("text", ["dual_chunk:chunk=8,local=3", "string:shift=6,local=2", "xpos"])
def test_what_has_no_meaning_there_is_refused(text):
    at = torch.zeros(1, 20, PAIRS, dtype=torch.long)
    for function in (attend, reference_attention):
        with pytest.raises(DoesNotFit, match="is not defined for tokens with several positions"):
            function(*inputs(), parse(text), FACTS, Tokens(pair_positions_bjp=at))


@pytest.mark.parametrize("at", [torch.zeros(1, 20, 3, dtype=torch.long), torch.zeros(1, 20, PAIRS)])
def test_other_shapes_and_fractions_are_refused(at):
    for function in (attend, reference_attention):
        with pytest.raises(InvalidValue, match=r"pair_positions_bjp must be whole numbers of shape \(1, 20, 4\)"):
            function(*inputs(), parse("rope"), FACTS, Tokens(pair_positions_bjp=at))
