"""Every scale against the authors' own numbers, and small cases by hand."""

import math

import pytest
import torch

from ropewalk import Facts
from ropewalk.methods.scales import (
    DeepSeekTemperature,
    DynamicTemperature,
    HeadScale,
    Llama4Temperature,
    LogN,
    LongRoPETemperature,
    SSMax,
    Temperature,
    YarnTemperature,
)

from golden_tables import golden

TABLES = golden("temperature")
ROWS = torch.tensor(TABLES["n(=position+1)"]) - 1
FACTS = Facts(trained_len=4096, head_dim=8, heads=2)


def test_a_stronger_log_n_grows_faster():
    """ln 4096^2 / ln 4096 is 2: one more than within the trained length, or one and a half."""
    rows = torch.tensor([10, 4095, 4096**2 - 1])
    assert LogN(strength=1.5).scale(rows, FACTS, {}).tolist() == [[1, 1, pytest.approx(2.5)]]


def value(scale, facts=FACTS):
    (constant,) = set(scale.scale(torch.tensor([0, 5, 10**6]), facts, {}).flatten().tolist())
    return constant


@pytest.mark.parametrize(
    ("trained_len", "key"), [(4096, "rerope_logn_clip_train4096_multiplies_q"), (2048, "rerope_logn_clip_train2048")]
)
def test_log_n_clipped(trained_len, key):
    facts = Facts(trained_len=trained_len, head_dim=8)
    expected = torch.tensor(TABLES[key], dtype=torch.float64)[None]
    torch.testing.assert_close(LogN().scale(ROWS, facts, {}), expected, rtol=1e-6, atol=0)


def test_log_n_as_the_patch_was_measured():
    expected = golden("relative_positions")["matrices"]["logn_clip_scale_train8"]
    got = LogN().scale(torch.arange(16), Facts(trained_len=8, head_dim=8), {})[0]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)


def test_log_n_unclipped_counts_from_the_first_token():
    facts = Facts(trained_len=512, head_dim=8)
    got = LogN(clipped=False).scale(torch.tensor([0, 22, 511, 512**2 - 1]), facts, {})[0]
    assert got.tolist() == pytest.approx([0, math.log(23) / math.log(512), 1, 2])


@pytest.mark.parametrize("factor", [f for f in TABLES["yarn_mscale_each_of_q_and_k"] if float(f) >= 1])
def test_yarn_counts_its_root_twice(factor):
    root = TABLES["yarn_mscale_each_of_q_and_k"][factor]
    assert value(YarnTemperature(factor=float(factor))) == pytest.approx(root**2, rel=1e-6)


@pytest.mark.parametrize("factor", TABLES["longrope_su_L4096"])
def test_longrope_counts_its_root_twice(factor):
    root = TABLES["longrope_su_L4096"][factor]
    assert value(LongRoPETemperature(factor=float(factor))) == pytest.approx(root**2, rel=1e-6)


def test_deepseek():
    """DeepSeek-V2: factor 40, both m 0.707: the configured quotient is 1; with their softmax scale, 1.58963."""
    assert value(DeepSeekTemperature(factor=40, mscale=0.707, mscale_all_dim=0.707)) == 1
    assert value(DeepSeekTemperature(factor=40, mscale=0.707)) == pytest.approx(1.58963, rel=1e-5)
    quotient = (0.1 * math.log(40) + 1) / (0.05 * math.log(40) + 1)
    assert value(DeepSeekTemperature(factor=40, mscale=1, mscale_all_dim=0.5)) == pytest.approx(quotient**2)


def test_literal():
    assert value(Temperature(value=1.25)) == 1.25


def test_head_scale_has_a_floor():
    got = HeadScale().scale(torch.arange(3), FACTS, {"lambda": torch.tensor([0.3, 1.9], dtype=torch.float64)})
    assert got.tolist() == [[1, 1, 1], [1.9, 1.9, 1.9]]


def test_llama4_temperature_as_metas_code_has_it():
    expected = TABLES["llama4_floor8192_0.1_multiplies_q(NoPE layers)"]
    got = Llama4Temperature(length=8192, first=1).scale(ROWS, FACTS, {})[0]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("first", "expected"), [(0, [0, 0, 0, 0, 1, 1, 1, 1, 2]), (1, [0, 0, 0, 1, 1, 1, 1, 2, 2])])
def test_llama4_temperature_by_hand(first, expected):
    """Steps of 4 tokens, the trained length; from 0 on nothing changes within it."""
    got = Llama4Temperature(beta=0.5, first=first).scale(torch.arange(9), Facts(trained_len=4, head_dim=8), {})[0]
    assert got.tolist() == pytest.approx([1 + 0.5 * math.log(1 + step) for step in expected])


def test_ssmax_begins_as_the_paper_does():
    """The reciprocal of the mean of ln n over 1,024 tokens is 0.168."""
    learned = SSMax().weights(Facts(trained_len=1024, head_dim=8, heads=3))["s"]
    assert learned.tolist() == pytest.approx([1024 / sum(map(math.log, range(1, 1025)))] * 3)
    assert learned.tolist() == pytest.approx([0.168] * 3, abs=5e-4)
    assert SSMax(start=0.43).weights(FACTS)["s"].tolist() == [0.43, 0.43]


def test_ssmax_has_no_floor_and_no_clip():
    got = SSMax().scale(torch.tensor([0, 1, 22]), FACTS, {"s": torch.tensor([0.5, -0.1], dtype=torch.float64)})
    logarithms = [0, math.log(2), math.log(23)]
    assert got.tolist() == [pytest.approx([s * x for x in logarithms]) for s in (0.5, -0.1)]


def test_dynamic_temperature_by_hand():
    """One step per doubling of 4: rows 0..3 untouched, 4..7 factor 2, 8..15 factor 4."""
    spec = DynamicTemperature(inner=YarnTemperature(factor=1), steps=1)
    got = spec.scale(torch.arange(9), Facts(trained_len=4, head_dim=8), {})[0].tolist()
    double, fourfold = (0.1 * math.log(2) + 1) ** 2, (0.1 * math.log(4) + 1) ** 2
    assert got == pytest.approx([1, 1, 1, 1, double, double, double, double, fourfold])
