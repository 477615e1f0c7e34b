"""Claims about formulas: each figure against the formula written out here."""

import math

import pytest

from ropewalk.methods.frequencies import RoPE

from studies import computed as module

FIGURES = {one.claim.name: one.figures for one in module.COMPUTED}
THETA = [10_000 ** (-pair / 64) for pair in range(64)]  # of LLaMA
NTK = [(10_000 * 8 ** (64 / 63)) ** (-pair / 64) for pair in range(64)]
SLOW = [pair for pair in range(64) if 2048 * THETA[pair] < 2 * math.pi]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pi-positions", [-0.5]),
        ("ntk-extrapolates", [sum(8 * NTK[pair] > THETA[pair] * (1 + 1e-9) for pair in SLOW)]),
        ("slow-pairs-several", [len(SLOW)]),
        ("qk-bias-free", [-100 * 262_144 / 6_738_415_616]),
        ("long-rows-cost", [(6_738_415_616 + 32 * 4096 * 131_072) / (6_738_415_616 + 32 * 4096 * 4096)]),
        (
            "constant-bias-falls",
            [
                sum(sum(math.cos(far * theta) for theta in THETA) * 4 for far in range(128)) / 128 / 32
                - sum(sum(math.cos(far * theta) for theta in THETA) * 4 for far in range(256, 512)) / 256 / 32
            ],
        ),
    ],
)
def test_figures_are_those_of_the_formula(name, expected):
    assert FIGURES[name]() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["ntk-ends", "rope-relative", "key-bias-cancels"])
def test_what_is_exact_is_zero(name):
    assert all(-module.EXACT < figure <= 0 for figure in FIGURES[name]())


def test_what_is_exact_could_fail(monkeypatch):
    """Under PI the fastest pair is slowed; a bias on keys matters with rotation; and so do absolute positions."""
    assert abs(float(module.ratios("pi")[0]) - 1) > 0.5
    assert module.moved_by_a_key_bias(RoPE()) > 0.01
    monkeypatch.setattr(module, "reference_logits", lambda q, k, _, __, tokens: q @ k.mT + tokens.positions_bj)
    assert FIGURES["rope-relative"]()[0] < -1
