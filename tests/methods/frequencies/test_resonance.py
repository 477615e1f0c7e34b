"""Whole wavelengths against the authors' numbers, and by hand."""

import math

import pytest
import torch

from ropewalk import Facts
from ropewalk.methods.frequencies import NTK, ByParts, Dynamic, LongRoPE, Resonance, RoPE, XPos
from ropewalk.methods.scales import DynamicTemperature, YarnTemperature

from golden_tables import golden

TABLES = golden("resonance")
INNER = {
    "rope": lambda factor: None,
    "ntk": lambda factor: NTK(factor=factor),
    "yarn": lambda factor: ByParts(factor=factor),
}
SINGLE = 4e-7  # relative: float32 wavelengths of the authors, after a power, a division and the ramp


def facts_of(case):
    return Facts(head_dim=case["dim"], base=case["base"], trained_len=case["train_len"])


def assert_wavelengths(spec, facts, length, inner, expected):
    """The same whole numbers; where float32 may have crossed a half, or has no whole numbers left, as close."""
    got = 2 * math.pi / spec.table(facts, length).inv_freq
    expected = torch.tensor(expected, dtype=torch.float64)
    unrounded = 2 * math.pi / (inner or RoPE()).table(facts, length).inv_freq
    clear = ((unrounded % 1) - 0.5).abs() > SINGLE * unrounded
    assert clear.sum() > len(got) / 2
    assert torch.equal(got[clear].round(), expected[clear])
    assert ((got - expected).abs() <= 1 + SINGLE * expected).all()
    torch.testing.assert_close(got, got.round(), rtol=1e-15, atol=0)


@pytest.mark.parametrize("method", INNER)
@pytest.mark.parametrize("case", TABLES["cases"], ids=lambda case: f"{case['dim']}-{case['base']:g}")
def test_the_authors_wavelengths(case, method):
    facts, inner = facts_of(case), INNER[method](case["factor"])
    expected = case["methods"][method]["wavelengths"]
    assert_wavelengths(Resonance(inner=inner), facts, 1, inner, expected)
    faster = torch.tensor(case["methods"][method]["inv_freq"], dtype=torch.float64)
    clear = faster > 0.01  # below a wavelength of 628 no rounding is in doubt
    got = Resonance(inner=inner).table(facts, 1).inv_freq
    torch.testing.assert_close(got[clear], faster[clear], rtol=1e-6, atol=0)


@pytest.mark.parametrize("step", TABLES["trace(dim64,base1e4,L2048)"], ids=lambda step: str(step["seq_len"]))
def test_dynamic_yarn_in_resonance_follows_the_trace(step):
    """Within the trained length the authors round the plain table, so that short texts change too."""
    facts, inner = Facts(head_dim=64, trained_len=2048), Dynamic(inner=ByParts(factor=1), steps=None)
    spec = Resonance(inner=inner)
    assert_wavelengths(spec, facts, step["seq_len"], inner, step["wavelengths"])
    temperature = DynamicTemperature(inner=YarnTemperature(factor=1), steps=None)
    scale = temperature.scale(torch.tensor([step["seq_len"] - 1]), facts, {})
    assert float(scale) == pytest.approx(step["mscale"] ** 2, rel=1e-6)
    assert spec.stages(facts, 2100) == inner.stages(facts, 2100)
    assert spec.stretch == math.inf


def test_the_authors_angles_come_round():
    """Their table of cos and sin repeats the first rotation; ours is computed at each position."""
    drawn = TABLES["angles"]
    table = Resonance(inner=ByParts(factor=drawn["factor"])).table(facts_of(drawn), 1)
    angles = torch.arange(64, dtype=torch.float64)[:, None] * table.inv_freq
    torch.testing.assert_close(angles.cos(), torch.tensor(drawn["cos"]).double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(angles.sin(), torch.tensor(drawn["sin"]).double(), rtol=0, atol=1e-5)


def table_of(*wavelengths):
    """A model whose own table has these wavelengths; 0 does not rotate."""
    theta = tuple(2 * math.pi / one if one else 0.0 for one in wavelengths)
    return Facts(trained_len=100, head_dim=2 * len(theta), inv_freq=theta)


def wavelengths(spec, facts, length=1):
    return [2 * math.pi / theta if theta else 0 for theta in spec.table(facts, length).inv_freq.tolist()]


def test_by_hand():
    facts = table_of(6.2832, 10.49, 10.51, 40, 0)
    assert wavelengths(Resonance(), facts) == pytest.approx([6, 10, 11, 40, 0])


def test_whole_wavelengths_stay():
    facts = table_of(6, 17, 400)
    torch.testing.assert_close(Resonance().table(facts, 1), RoPE().table(facts, 1), rtol=1e-15, atol=0)


def test_rounding_comes_after_the_schedule():
    facts, stretched = table_of(6.2832, 10.49), LongRoPE(long=(1.0, 3.0))
    assert wavelengths(Resonance(inner=stretched), facts, 1) == pytest.approx([6, 10])
    assert wavelengths(Resonance(inner=stretched), facts, 101) == pytest.approx([6, 31])  # 31.47, not 3 times 10


def test_a_decay_is_kept():
    facts = Facts(trained_len=64, head_dim=8)
    assert torch.equal(Resonance(inner=XPos()).table(facts, 1).log_decay, XPos().table(facts, 1).log_decay)
