"""Small tables worked by hand, for what no reference covers."""

import math

import pytest
import torch

from ropewalk import Facts
from ropewalk.methods.frequencies import (
    ABF,
    NTK,
    ByParts,
    ByShares,
    Dynamic,
    Llama3,
    NoPE,
    NTKFixed,
    NTKMixed,
    NTKOld,
    Partial,
    RoPE,
)

FACTS = Facts(trained_len=1000, head_dim=4, base=100.0)  # theta = 1, 0.1; turns within 1,000: 159.15, 15.915


def values(spec, facts=FACTS):
    return spec.table(facts, 1).inv_freq.tolist()


def test_rope():
    assert values(RoPE()) == pytest.approx([1, 0.1])


def test_ntk_leaves_the_first_and_divides_the_last_by_the_factor():
    assert values(NTK(factor=4)) == pytest.approx([1, 0.025])


def test_ntk_in_beta_numerals():
    assert values(NTKOld(factor=4)) == pytest.approx([1, 0.05])  # factor^(-2/4)
    assert values(NTKFixed(factor=4)) == pytest.approx([0.5, 0.025])  # factor^(-1/2), factor^-1
    assert values(NTKMixed(factor=4, power=1)) == pytest.approx([0.5, 0.025])
    assert values(NTKMixed(factor=4, power=0)) == pytest.approx([0.25, 0.025])


def test_shares_are_powers_of_the_factor():
    assert values(ByShares(factor=4, shares=(0, 0.5))) == pytest.approx([1, 0.05])
    assert values(ByShares(factor=9, shares=(0.5, 1))) == pytest.approx([1 / 3, 0.1 / 9])
    stepped = Dynamic(inner=ByShares(factor=1, shares=(0, 0.5)), steps=1)
    assert stepped.table(FACTS, FACTS.trained_len).inv_freq.tolist() == pytest.approx([1, 0.1])
    assert stepped.table(FACTS, 4 * FACTS.trained_len).inv_freq.tolist() == pytest.approx([1, 0.05])


def test_by_parts_over_turns_is_the_seeds_formula():
    """The last pair turns 15.915 times: keep = 14.915/31."""
    keep = (1000 * 0.1 / (2 * math.pi) - 1) / 31
    assert values(ByParts(factor=4, ramp="turns")) == pytest.approx([1, 0.1 * keep + 0.025 * (1 - keep)])


def test_by_parts_threshold_is_an_ordinary_field():
    assert values(ByParts(factor=4, ramp="turns", high_turns=15)) == pytest.approx([1, 0.1])
    assert values(ByParts(factor=4, ramp="turns", low_turns=16)) == pytest.approx([1, 0.025])


def test_an_index_ramp_without_a_pair_between_its_ends_is_not_inverted():
    """No pair comes round in 4 tokens: all but the first are interpolated. At base 2 all turn often: none is."""
    never, often = Facts(trained_len=4, head_dim=8), Facts(trained_len=4096, head_dim=8, base=2.0)
    assert (RoPE().table(never, 1).inv_freq / ByParts(factor=4).table(never, 1).inv_freq).tolist()[1:] == [4, 4, 4]
    assert (RoPE().table(often, 1).inv_freq / ByParts(factor=4).table(often, 1).inv_freq).tolist() == [1, 1, 1, 1]


def test_pairs_that_stand_still_do_not_move_the_ramp():
    """Not rotated by layout, or stopped by a divisor of 1e20 as in a table that Ropewalk wrote for an engine."""
    theta = tuple(10_000 ** (-pair / 8) for pair in range(7))
    tables = [Facts(trained_len=8192, head_dim=16, inv_freq=(*theta, last)) for last in (0.0, 1e-24)]
    by_layout, by_divisor = (values(ByParts(factor=4, truncate=False), facts) for facts in tables)
    assert by_layout[:-1] == by_divisor[:-1]  # the ramp ends beyond the last pair that rotates
    assert 1 < theta[6] / by_divisor[6] < 4


def test_llama3_without_a_band_is_a_step():
    assert values(Llama3(factor=4, low_turns=16, high_turns=16)) == pytest.approx([1, 0.025])
    assert values(Llama3(factor=4, low_turns=15, high_turns=15)) == pytest.approx([1, 0.1])


def test_new_base_and_none():
    assert values(ABF(new_base=10_000)) == pytest.approx([1, 0.01])
    assert values(NoPE()) == [0, 0]


def test_partial():
    wide = Facts(trained_len=1000, head_dim=8, base=100.0)
    assert values(Partial(share=0.5), wide) == pytest.approx([1, 0.1])
    assert values(Partial(share=0.5, over="head"), wide) == pytest.approx([1, 100**-0.25, 0, 0])


def test_rotary_dim_of_the_model_counts_as_d():
    neox = Facts(trained_len=1000, head_dim=64, rotary_dim=4, base=100.0)
    assert values(RoPE(), neox) == pytest.approx([1, 0.1])
    torch.testing.assert_close(NTK(factor=4).table(neox, 1).inv_freq, NTK(factor=4).table(FACTS, 1).inv_freq)
