"""XPos against torchscale's own outputs, through the rotation of the oracle."""

import pytest
import torch

from ropewalk import Facts
from ropewalk.equation import grow, rotate
from ropewalk.errors import DoesNotFit
from ropewalk.methods.frequencies import ABF, XPos

from golden_tables import golden

TABLE = golden("xpos")
FACTS = Facts(head_dim=TABLE["head_dim"], trained_len=512, interleaved=True)


def test_zeta():
    decay = XPos().table(FACTS, 1).log_decay * TABLE["scale_base"]
    torch.testing.assert_close(decay.exp(), torch.tensor(TABLE["scale(zeta)"], dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("length", [5, 6])
@pytest.mark.parametrize("side", ["q", "k"])
def test_rotated_ones(length, side):
    """The authors centre the decay on the middle of the text and turn from 0."""
    table, ones = XPos().table(FACTS, 1), torch.ones(1, 1, length, FACTS.head_dim, dtype=torch.float64)
    positions = torch.arange(length)[None]
    sign, centre = (1 if side == "q" else -1), (length + 1) // 2
    turned = grow(rotate(ones, positions, table, True), sign * (positions - centre), table, True)
    expected = torch.tensor(TABLE[f"ms_len{length}_{side}(ones)"], dtype=torch.float64)
    torch.testing.assert_close(turned[0, 0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("interleaved", [True, False])
def test_growth_is_the_real_part(interleaved):
    """Growing by the distance multiplies each pair by zeta^(distance / 512)."""
    table, x = XPos().table(FACTS, 1), torch.ones(1, 1, 1, 8, dtype=torch.float64)
    zeta = torch.tensor(TABLE["scale(zeta)"], dtype=torch.float64)
    expected = (zeta ** (700 / 512)).repeat_interleave(2) if interleaved else (zeta ** (700 / 512)).repeat(2)
    torch.testing.assert_close(grow(x, torch.tensor([[700]]), table, interleaved)[0, 0, 0], expected, rtol=1e-6, atol=0)


def test_a_larger_base_turns_as_abf_does_and_decays_as_before():
    ours, abf = XPos(new_base=500_000.0).table(FACTS, 1), ABF(new_base=500_000.0).table(FACTS, 1)
    assert torch.equal(ours.inv_freq, abf.inv_freq)
    assert torch.equal(ours.log_decay, XPos().table(FACTS, 1).log_decay)
    assert not torch.equal(ours.inv_freq, XPos().table(FACTS, 1).inv_freq)


def test_the_model_s_own_base_is_refused():
    with pytest.raises(DoesNotFit, match="new_base must be another than the model's own base"):
        XPos(new_base=FACTS.base).check_against(FACTS)
