"""Facts about biases that follow from their formulas."""

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from ropewalk import DoesNotFit, Extension, Facts, parse
from ropewalk.equation import reference_weights
from ropewalk.methods.biases import T5, ALiBi, FarDiscount, GAURotary, KerpleLog, KerplePower, Sandwich
from ropewalk.methods.docstrings import page_of

FACTS = Facts(trained_len=64, head_dim=8, heads=2)
DISTANCE = torch.arange(50)


def test_gau_with_equal_even_vectors_is_sandwich():
    """a = b = sqrt(l) on the even entries: both readings of kexue.fm/9577."""
    even = torch.zeros(2, 16, dtype=torch.float64)
    even[:, 0::2] = torch.tensor([[2 / 8], [2 / 16]], dtype=torch.float64).sqrt()
    gau = GAURotary(width=16).bias(DISTANCE, DISTANCE, FACTS, {"a": even, "b": even})
    sandwich = Sandwich(width=16, first=0).bias(DISTANCE, DISTANCE, FACTS, {})
    torch.testing.assert_close(gau - gau[:, :1], sandwich)


def test_kerple_draws_its_numbers_as_the_authors_do():
    """layers.py: bias_p uniform up to 2, bias_a uniform up to 1."""
    many = replace(FACTS, heads=20_000)
    drawn = KerpleLog().weights(many, torch.Generator().manual_seed(0))
    for name, most in (("p", 2), ("a", 1)):
        assert drawn[name].shape == (many.heads,)
        assert 0 <= drawn[name].min() < 0.01 * most
        assert 0.99 * most < drawn[name].max() <= most
        assert drawn[name].mean().item() == pytest.approx(most / 2, rel=0.02)
    assert abs(torch.corrcoef(torch.stack([drawn["p"], drawn["a"]]))[0, 1]) < 0.05


def test_kerple_power_of_one_is_alibi():
    four = Facts(trained_len=64, head_dim=8, heads=4)
    weights = {"p": torch.ones(3), "a": torch.tensor([1 / 4, 1 / 16, 1 / 64], dtype=torch.float64)}
    power = KerplePower().bias(DISTANCE, DISTANCE, four, weights)
    torch.testing.assert_close(power, ALiBi().bias(DISTANCE, DISTANCE, four, {})[:3])  # the fourth is below the clamp


def test_t5_reads_its_table():
    table = torch.arange(64, dtype=torch.float64).view(32, 2)
    got = T5().bias(torch.tensor([0, 5, 127, 10**9]), torch.zeros(4), FACTS, {"table": table})
    assert got.tolist() == [[0, 10, 62, 62], [1, 11, 63, 63]]


def test_t5_takes_what_rounding_leaves_of_a_whole_distance_for_whole():
    """Leaky ReRoPE with a leak of 3: 1 + 8/3 - 2/3 is 3, or a little less, by the order of the sums."""
    below = torch.tensor([2.9999999999999996, 3.0, 3.0000000000000004, 2.9999, 15.999999999999998], dtype=torch.float64)
    assert T5().bucket(below).tolist() == [3, 3, 3, 2, 16]


def test_long_distances_stay_exact():
    """A distance beyond 2^24 is no float32 any more; the bias is computed without one."""
    far = torch.tensor([2**24 + 1])
    assert float(ALiBi().bias(far, far, FACTS, {})[0]) == -(2**24 + 1) / 16


def test_far_discount_by_hand():
    """L = 64 and w = 14: 50 far keys in the last row of training, 100 in row 113."""
    query = torch.tensor([113, 113, 63, 40])
    distance = torch.tensor([14, 13, 50, 30])
    for strength in (1.0, 0.5):
        got = FarDiscount(window=14, strength=strength).bias(distance, query, FACTS, {})
        assert got.tolist() == [pytest.approx([-strength * math.log(2), 0, 0, 0])] * 2


@pytest.mark.parametrize(("distance", "far"), [(13, False), (13.5, False), (13.51, True), (13.99, True), (14, True)])
def test_far_discount_begins_where_its_page_says(distance, far):
    """Above w - 1/2: distances under a leak are fractions."""
    assert "for distances above w - 1/2" in page_of(FarDiscount).formula
    bias = FarDiscount(window=14, strength=1)
    got = bias.bias(torch.tensor([distance]), torch.tensor([113]), FACTS, {})
    assert float(got[0]) == pytest.approx(-math.log(2) if far else 0)
    reached = pytest.raises(DoesNotFit, match=r"begins above a distance of 13\.5") if not far else nullcontext()
    with reached:
        bias.check_reached(distance, True, FACTS)


@pytest.mark.parametrize("reach", ["rerope:window=9", "self_extend:window=9,group=4", "leaky_rerope:window=9,leak=3"])
def test_under_strength_1_far_keys_keep_their_share_where_all_logits_are_alike(reach):
    """Near keys 9, far keys 55 in the last row of training: 55/64 of the weight, however many there are."""
    q, k = torch.zeros(1, 2, 300, 8), torch.zeros(1, 2, 300, 8)
    weights = reference_weights(q, k, parse(f"{reach}+far_discount:window=9,strength=1", trained_len=64), FACTS)
    for row in (63, 64, 150, 299):
        assert float(weights[0, 0, row, : row - 8].sum()) == pytest.approx(55 / 64)
    assert float(weights[0, 0, 40, 40]) == pytest.approx(1 / 41)  # within the trained length nothing changes


def test_far_discount_refuses_windows_beyond_training():
    with pytest.raises(DoesNotFit, match="window must be from 1 to below the trained length"):
        FarDiscount(window=64).check_against(FACTS)
    assert torch.equal(
        FarDiscount().bias(DISTANCE, DISTANCE + 99, FACTS, {}),
        FarDiscount(window=24).bias(DISTANCE, DISTANCE + 99, FACTS, {}),
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("rerope:window=20", "far_discount begins above a distance of 23.5, but no key is further than 20"),
        (
            "dual_chunk:chunk=16,local=4+log_n",
            "far_discount begins above a distance of 23.5, but no key is further than",
        ),
        ("streaming", "far_discount counts all keys of the text, but the reach hides some of them"),
        ("window", "far_discount counts all keys of the text, but the reach hides some of them"),
        ("bca", "far_discount counts all keys of the text, but the reach hides some of them"),
    ],
)
def test_far_discount_refuses_reaches_under_which_it_does_nothing_or_counts_wrongly(line, sentence):
    with pytest.raises(DoesNotFit, match=sentence):
        parse(f"{line}+far_discount", trained_len=64).check_against(FACTS)
    layer = parse("far_discount") + Extension(layers={0: parse(line, trained_len=64)})
    with pytest.raises(DoesNotFit, match=sentence):
        layer.check_against(replace(FACTS, layers=2))


@pytest.mark.parametrize(
    "line", ["rope", "yarn:factor=4", "rerope:window=24", "leaky_rerope:window=9,leak=3", "string"]
)
def test_far_discount_takes_reaches_that_show_the_whole_text(line):
    parse(f"{line}+far_discount", trained_len=64, target_len=512).check_against(FACTS)
