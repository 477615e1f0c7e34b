"""Schedules whose table belongs to the row."""

import math

import pytest
import torch

from ropewalk import Facts
from ropewalk.methods.frequencies import NTK, ByParts, Dynamic, Interpolation, LongRoPE, Partial, RoPE

from examples import FACTS, FREQUENCIES

L = FACTS.trained_len


@pytest.mark.parametrize("inner", [NTK(factor=1), ByParts(factor=1), Interpolation(factor=1)], ids=str)
def test_rows_within_the_trained_length_are_untouched_bit_for_bit(inner):
    original = RoPE().table(FACTS, 1).inv_freq
    for length in (1, L // 2, L):
        assert torch.equal(Dynamic(inner=inner).table(FACTS, length).inv_freq, original)
    assert not torch.equal(Dynamic(inner=inner).table(FACTS, L + 1).inv_freq, original)


@pytest.mark.parametrize("steps", [1, 2, 4, 7, None])
@pytest.mark.parametrize("trained_len", [1, 2, 3, 32, 1000, 4096])
def test_the_factor_covers_the_row_and_steps_are_few(steps, trained_len):
    facts = Facts(trained_len=trained_len, head_dim=8)
    for length in range(1, 9 * trained_len, max(trained_len // 13, 1)):
        factor = facts.stretch(length, steps)
        assert factor >= length / trained_len * (1 - 1e-12) or factor == 1
        assert factor <= max(1, length / trained_len) * (2 ** (1 / steps) if steps else 1) * (1 + 1 / length)


@pytest.mark.parametrize("steps", [1, 4, None])
@pytest.mark.parametrize("trained_len", [1, 3, 32])
def test_stages_are_exactly_where_the_factor_changes(steps, trained_len):
    facts, longest = Facts(trained_len=trained_len, head_dim=8), 10 * trained_len
    factors = [facts.stretch(length, steps) for length in range(1, longest + 1)]
    changes = [n for n in range(1, longest + 1) if n == 1 or factors[n - 1] != factors[n - 2]]
    assert list(facts.stage_starts(longest, steps)) == changes


def test_steps_by_hand():
    """At two steps per doubling of 32: 32, 45.25, 64, 90.5, 128."""
    facts = Facts(trained_len=32, head_dim=8)
    assert facts.stage_starts(128, 2) == (1, 33, 46, 65, 91)
    assert facts.stretch(45, 2) == pytest.approx(math.sqrt(2))
    assert facts.stretch(46, 2) == 2
    assert facts.stretch(65, 2) == pytest.approx(2 * math.sqrt(2))


@pytest.mark.parametrize("spec", FREQUENCIES, ids=str)
def test_tables_are_constant_within_a_stage(spec):
    longest = 5 * L
    starts = spec.stages(FACTS, longest)
    for length in range(1, longest + 1):
        start = max(s for s in starts if s <= length)
        assert torch.equal(torch.cat(spec.table(FACTS, length)), torch.cat(spec.table(FACTS, start)))


def test_longrope_switches_per_row():
    spec = LongRoPE(short=(2.0,) * 8, long=(4.0,) * 8)
    theta = RoPE().table(FACTS, 1).inv_freq
    torch.testing.assert_close(spec.table(FACTS, L).inv_freq, theta / 2)
    torch.testing.assert_close(spec.table(FACTS, L + 1).inv_freq, theta / 4)


def test_partial_keeps_the_inner_schedule_and_its_stages():
    spec = Partial(share=0.5, inner=Dynamic(inner=NTK(factor=1)))
    narrow = Facts(trained_len=L, head_dim=8)
    assert torch.equal(spec.table(FACTS, 90).inv_freq, Dynamic(inner=NTK(factor=1)).table(narrow, 90).inv_freq)
    assert spec.stages(FACTS, 90) == Dynamic(inner=NTK(factor=1)).stages(narrow, 90)
