"""XPos against torchscale's own outputs, through the rotation of the oracle."""

import pytest
import torch

from ropewalk import Facts
from ropewalk.equation import rotate
from ropewalk.frequencies import XPos

from golden_tables import golden

TABLE = golden("xpos")
FACTS = Facts(head_dim=TABLE["head_dim"], trained_len=512, interleaved=True)


def test_zeta():
    decay = XPos().table(FACTS, 1).log_decay * TABLE["scale_base"]
    torch.testing.assert_close(decay.exp(), torch.tensor(TABLE["scale(zeta)"], dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("length", [5, 6])
@pytest.mark.parametrize("side", ["q", "k"])
def test_rotated_ones(length, side):
    """The authors centre the decay on the middle of the text and turn from 0; both origins cancel in a product."""
    table, ones = XPos().table(FACTS, 1), torch.ones(1, 1, length, FACTS.head_dim, dtype=torch.float64)
    positions = torch.arange(length)[None]
    turned = rotate(ones, positions, table, True, key=side == "k")
    centre = (length + 1) // 2
    shift = torch.exp(table.log_decay * (-1 if side == "q" else 1) * centre).repeat_interleave(2)
    expected = torch.tensor(TABLE[f"ms_len{length}_{side}(ones)"], dtype=torch.float64)
    torch.testing.assert_close((turned * shift)[0, 0], expected, rtol=0, atol=1e-5)


def test_product_decays_with_distance_alone():
    table = XPos().table(FACTS, 1)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def product(m, n):
        at = torch.tensor([[m]]), torch.tensor([[n]])
        return float((rotate(q, at[0], table, True) * rotate(k, at[1], table, True, key=True)).sum())

    assert product(700, 650) == pytest.approx(product(50, 0), rel=1e-9)
    same = rotate(q, torch.tensor([[9]]), table, True) * rotate(q, torch.tensor([[9]]), table, True, key=True)
    torch.testing.assert_close(same.sum(), (q * q).sum())
