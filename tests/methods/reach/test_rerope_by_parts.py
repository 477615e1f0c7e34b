"""ReRoPE by parts: distances worked by hand, logits by complex numbers, and the two reaches between which it lies."""

import math
from dataclasses import replace

import pytest
import torch

from ropewalk import DoesNotFit, Extension, Facts, parse, reference_attention
from ropewalk.equation import reference_logits
from ropewalk.methods.reach import LeakyReRoPE, ReRoPE, ReRoPEByParts

FACTS = Facts(trained_len=32, head_dim=8, heads=2, kv_heads=1, base=100.0)
PARTS = ReRoPEByParts(window=2, leak=4, low_turns=1, high_turns=2)


def inputs(length):
    torch.manual_seed(0)
    sizes = [(1, heads, length, FACTS.head_dim) for heads in (2, 1, 1)]
    return [torch.randn(size, dtype=torch.float64) for size in sizes]


def test_distances_by_hand():
    turns = torch.tensor([8.0, 2.0, 1.5, 0.5], dtype=torch.float64)  # they keep 1, 1, 1/2, 0: shares 0, 0, 1/8, 1/4
    near, far = PARTS.spans()
    assert near.pairs is None
    distance = far.q_rotated(torch.tensor([6]), turns) - far.k_rotated(torch.tensor([[0], [4]])[:, 0], turns)
    assert distance.tolist() == [[2.0, 2.0, 2.5, 3.0], [2.0, 2.0, 2.0, 2.0]]


def test_logits_by_complex_numbers():
    q, k, _ = inputs(12)
    theta = [100.0 ** (-2 * pair / 8) for pair in range(4)]
    shares = [(1 - min(max(32 * angle / (2 * math.pi) - 1, 0), 1)) / 4 for angle in theta]
    logits = reference_logits(q, k, Extension(reach=PARTS), FACTS)
    for i, j in [(11, 0), (11, 7), (5, 3), (11, 10), (4, 4)]:
        distances = [i - j if i - j < 2 else 2 + share * (i - j - 2) for share in shares]
        pairs = torch.complex(q[0, 1, i, :4], q[0, 1, i, 4:]) * torch.complex(k[0, 0, j, :4], -k[0, 0, j, 4:])
        angles = [angle * distance for angle, distance in zip(theta, distances, strict=True)]
        turned = [pair * complex(math.cos(angle), math.sin(angle)) for pair, angle in zip(pairs, angles, strict=True)]
        expected = sum(float(pair.real) for pair in turned) / math.sqrt(8)
        assert float(logits[0, 1, i, j]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("turns", "limit"), [((1e-6, 1e-5), ReRoPE(window=5)), ((1e5, 1e6), LeakyReRoPE(window=5, leak=4))], ids=str
)
def test_where_all_pairs_are_of_one_kind_it_is_the_reach_of_that_kind(turns, limit):
    parts = ReRoPEByParts(window=5, leak=4, low_turns=turns[0], high_turns=turns[1])
    outputs = [reference_attention(*inputs(60), Extension(reach=reach), FACTS) for reach in (parts, limit)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)


def test_a_decay_is_refused():
    with pytest.raises(DoesNotFit, match="xpos needs one distance, but rerope_by_parts gives each pair its own"):
        reference_attention(*inputs(9), parse("rerope_by_parts:window=5+frequencies.xpos"), replace(FACTS))


def test_parts_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="low_turns must be below high_turns"):
        parse("rerope_by_parts:window=5,low_turns=9,high_turns=3")
