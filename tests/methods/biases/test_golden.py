"""Every bias against the authors' own numbers."""

import pytest
import torch

from ropewalk import Facts
from ropewalk.methods.biases import FIRE, T5, ALiBi, GAURotary, KerpleLog, KerplePower, Sandwich
from ropewalk.methods.biases.alibi import slopes

from golden_tables import golden

TABLES = golden("biases")


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def facts(heads):
    return Facts(trained_len=512, head_dim=8, heads=heads)


def square(length):
    """Causal distances and the queries they belong to; 0 above the diagonal."""
    i = torch.arange(length)
    return (i[:, None] - i).clamp(min=0), i[:, None].expand(length, length)


def assert_bias(got, expected):
    torch.testing.assert_close(got, tensor(expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize("heads", [int(heads) for heads in TABLES["alibi_slopes"]])
def test_alibi_slopes(heads):
    expected = TABLES["alibi_slopes"][str(heads)]
    torch.testing.assert_close(slopes(heads), tensor(expected), rtol=1e-6, atol=0)
    distance = torch.tensor([3])
    torch.testing.assert_close(
        ALiBi().bias(distance, distance, facts(heads), {})[:, 0], -3 * tensor(expected), rtol=1e-6, atol=0
    )


KERPLE = TABLES["kerple"]
WEIGHTS = {"p": tensor(KERPLE["r_p(bias_p)"]), "a": tensor(KERPLE["r_a(bias_a)"])}


@pytest.mark.parametrize(
    ("bias", "key"), [(KerpleLog(), "log_bias[h][i][j] = -p*log(1+a*d)"), (KerplePower(), "power_bias = -a*d^p")]
)
def test_kerple(bias, key):
    distance, query = square(16)
    assert_bias(bias.bias(distance, query, facts(4), WEIGHTS), KERPLE[key])


def test_kerple_clamps_what_left_its_range():
    case = KERPLE["log_bias_with_out_of_range_params_clamped"]
    weights = {"p": tensor(case["p"]), "a": tensor(case["a"])}
    distance = torch.arange(15, -1, -1)
    assert_bias(KerpleLog().bias(distance, distance, facts(4), weights), case["bias_lastrow"])
    if "power_bias_lastrow" in case:
        assert_bias(KerplePower().bias(distance, distance, facts(4), weights), case["power_bias_lastrow"])


def test_sandwich_in_both_readings():
    case = TABLES["sandwich"]
    distance = torch.arange(15, -1, -1)
    nemo = Sandwich(width=case["bar_d"]).bias(distance, distance, facts(case["heads"]), {})
    torch.testing.assert_close(nemo, tensor(case["nemo_lastrow"]), rtol=0, atol=2e-5)
    paper = Sandwich(width=case["bar_d"], first=0).bias(distance, distance, facts(case["heads"]), {})
    listed = tensor(case["appendix_lastrow"])
    # The listing has no constant: it cancels in the softmax and is compared away.
    assert_bias(paper, (listed - listed[:, -1:]).tolist())


def test_t5_buckets():
    distances = torch.arange(300)
    assert T5().bucket(distances).tolist() == TABLES["t5_buckets"]["causal_32_128_for_distance_0..299"]


@pytest.mark.parametrize(("key", "threshold"), [("bias_n8", 512.0), ("bias_n8_L4", 4.0)])
def test_fire(key, threshold):
    case = TABLES["fire"]
    names = {
        "mlp.0.weight": "in_weight",
        "mlp.0.bias": "in_bias",
        "mlp.2.weight": "out_weight",
        "mlp.2.bias": "out_bias",
    }
    weights = {ours: tensor(case["params"][theirs]) for theirs, ours in names.items()}
    weights |= {"c": tensor(case["params"]["c"]), "multiplier": tensor(case["params"]["L_multiplier"])}
    distance, query = square(8)
    causal = torch.ones(8, 8, dtype=torch.bool).tril()
    got = FIRE(threshold=threshold).bias(distance, query, facts(2), weights)
    torch.testing.assert_close(got[:, causal], tensor(case[key])[:, causal], rtol=0, atol=2e-6)


def test_gau_rotary_bias():
    case = TABLES["gau_rel_bias"]
    weights = {"a": tensor(case["a"])[None], "b": tensor(case["b"])[None]}
    distance, query = square(8)
    causal = torch.ones(8, 8, dtype=torch.bool).tril()
    got = GAURotary(width=8).bias(distance, query, facts(1), weights)[0]
    torch.testing.assert_close(got[causal], tensor(case["bias_8x8"])[causal], rtol=0, atol=1e-6)
