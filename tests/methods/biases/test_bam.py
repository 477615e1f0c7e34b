"""BAM: its generalized Gaussian by hand and by its density, and the biases that it contains."""

import math

import pytest
import torch

from ropewalk import Facts, parse, reference_attention
from ropewalk.methods.biases import BAM, ALiBi

TWO = Facts(trained_len=16, head_dim=8, heads=2)
DISTANCE = torch.arange(9)


def of(bam, **learned):
    weights = {name: torch.tensor(values, dtype=torch.float64) for name, values in learned.items()}
    return bam.bias(DISTANCE, DISTANCE, TWO, weights)


def test_by_hand():
    """s = ln 3, p = 2: -3 (d + 1e-5)^2. s = 0, p = -1: near keys are pushed away, the query itself by 100,000."""
    square, away = of(BAM(), s=[math.log(3), 0], p=[2, -1])
    assert square[:3].tolist() == pytest.approx([-3e-10, -3 * 1.00001**2, -3 * 2.00001**2])
    assert away[0] == pytest.approx(-1e5)
    assert away[1:].tolist() == pytest.approx([-1 / (d + 1e-5) for d in range(1, 9)])


def test_the_centre_moves_as_the_authors_write_it():
    """Their columns are j - i - (e^m - e^-m): m = -ln 2 is a centre 1.5 tokens back, m = ln 2 one 1.5 tokens ahead."""
    back, ahead = of(BAM(centred=False), s=[0, 0], p=[1, 1], m=[-math.log(2), math.log(2)])
    assert back.tolist() == pytest.approx([-(abs(d - 1.5) + 1e-5) for d in range(9)])
    assert ahead.tolist() == pytest.approx([-(d + 1.5 + 1e-5) for d in range(9)])


def test_weights_are_those_of_a_generalized_gaussian():
    """A softmax over the bias alone is the density exp(-|d / a|^p) at each distance, a = e^(-s/p), over its sum."""
    s, p = 0.7, 1.6
    got = torch.softmax(of(BAM(), s=[s, s], p=[p, p]), -1)[0]
    density = torch.tensor([math.exp(-(((d + 1e-5) / math.exp(-s / p)) ** p)) for d in range(9)], dtype=torch.float64)
    torch.testing.assert_close(got, density / density.sum())


def test_a_power_of_one_is_alibi_and_a_fresh_one_is_nothing():
    got = of(BAM(), s=[math.log(1 / 16), math.log(1 / 256)], p=[1, 1])
    torch.testing.assert_close(got, ALiBi().bias(DISTANCE, DISTANCE, TWO, {}), rtol=0, atol=1e-6)
    assert (BAM().bias(DISTANCE, DISTANCE, TWO, BAM().weights(TWO)) == -1).all()
    assert set(BAM().weights(TWO)) == {"s", "p"}
    assert set(BAM(centred=False).weights(TWO)) == {"s", "p", "m"}


def test_the_preset_is_attention_without_rotation_times_the_logarithm_of_the_keys():
    """softmax(s ln(n) q k / sqrt(d) + bias), as the authors compute it, row by row."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = torch.randn(3, 1, 2, 7, 8, generator=generator, dtype=torch.float64)
    weights = {"bam": {"s": torch.tensor([0.3, -1.0]), "p": torch.tensor([0.5, -0.4])}, "ssmax": {"s": torch.ones(2)}}
    got = reference_attention(q, k, v, parse("bam"), TWO, weights=weights)
    for head, (s, p) in enumerate(zip(weights["bam"]["s"].tolist(), weights["bam"]["p"].tolist(), strict=True)):
        for row in range(7):
            seen = range(row + 1)
            logits = [math.log(row + 1) * float(q[0, head, row] @ k[0, head, j]) / math.sqrt(8) for j in seen]
            logits = [x - math.exp(s) * (row - j + 1e-5) ** p for j, x in zip(seen, logits, strict=True)]
            shares = [math.exp(x - max(logits)) for x in logits]
            expected = sum(share * v[0, head, j] for j, share in zip(seen, shares, strict=True)) / sum(shares)
            torch.testing.assert_close(got[0, head, row], expected, rtol=1e-6, atol=1e-7)
