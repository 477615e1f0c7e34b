"""DPE: distances of the authors' code and by hand, logits by complex numbers, and the reaches that it is made of."""

import math

import pytest
import torch

from ropewalk import DoesNotFit, Extension, Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import attend
from ropewalk.equation import reference_logits
from ropewalk.methods.reach import DPE, SelfExtend, effective_distances, furthest

from golden_tables import golden

FACTS = Facts(trained_len=32, head_dim=8, heads=2, kv_heads=1, base=100.0)
BANDS = DPE(window=2, groups=(2, 3, 1))
CASES = golden("dpe")["cases"]
REACHES_BY_PAIRS = ["dpe:window=5,groups=[4,9,2]", "rerope_by_parts:window=5,leak=4,low_turns=0.3"]


def inputs(length):
    torch.manual_seed(0)
    sizes = [(1, heads, length, FACTS.head_dim) for heads in (2, 1, 1)]
    return [torch.randn(size, dtype=torch.float64) for size in sizes]


def distances_of_pairs(reach, length, pairs):
    """[pairs, queries, keys]: at which distance each pair of a query sees each pair of a key; nan where it does not."""
    at, seen = torch.arange(length), torch.full((length, length, pairs), torch.nan, dtype=torch.float64)
    turns = torch.ones(pairs, dtype=torch.float64)
    for span in reach.spans():
        start, stop = span.bounds(at)
        inside = (start[:, None] <= at) & (at < stop[:, None])
        q_at, k_at = (places.view(length, -1) for places in (span.q_rotated(at, turns), span.k_rotated(at, turns)))
        seen = torch.where(inside[..., None], (q_at[:, None] - k_at[None]).double(), seen)
    return seen.permute(2, 0, 1)


def table(rows):
    return torch.tensor([[[math.nan if cell is None else cell for cell in row] for row in one] for one in rows])


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["groups"]))
def test_every_pair_is_where_the_authors_decoding_has_it(case):
    reach = DPE(window=case["window"], groups=case["groups"])
    expected = table(case["decode"]).double()
    got = distances_of_pairs(reach, expected.shape[-1], case["pairs"])
    torch.testing.assert_close(got, expected, rtol=0, atol=0.02, equal_nan=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["groups"]))
def test_and_their_prefill_up_to_its_fraction(case):
    """Their prefill shifts by w - w/G, their decoding by w - w//G."""
    window, groups, expected = case["window"], case["groups"], table(case["prefill"]).double()
    length, pairs = expected.shape[-1], case["pairs"]
    per_pair = torch.tensor(groups).repeat_interleave(pairs // len(groups))[:, None, None]
    far = (torch.arange(length)[:, None] - torch.arange(length)) >= window
    expected = torch.where(far, expected + window / per_pair - window // per_pair, expected)
    got = distances_of_pairs(DPE(window=window, groups=groups), length, pairs)
    torch.testing.assert_close(got, expected, rtol=0, atol=0.02, equal_nan=True)


def test_distances_by_hand():
    """Four pairs in three bands: 0 and 1 in groups of 2, 2 in groups of 3, 3 as it is."""
    seen = distances_of_pairs(BANDS, 8, 4)
    assert seen[:, 7, 0].tolist() == [4, 4, 4, 7]  # 3 - 0 + 2 - 1 twice, 2 - 0 + 2 - 0, 7 - 0 + 2 - 2
    assert seen[:, 7, 4].tolist() == [2, 2, 3, 3]  # 3 - 2 + 1, 2 - 1 + 2, 7 - 4
    assert seen[:, 7, 6].tolist() == [1, 1, 1, 1]


def test_logits_by_complex_numbers():
    q, k, _ = inputs(12)
    theta, groups = [100.0 ** (-2 * pair / 8) for pair in range(4)], (2, 2, 3, 1)
    logits = reference_logits(q, k, Extension(reach=BANDS), FACTS)
    for i, j in [(11, 0), (11, 7), (5, 3), (11, 10), (4, 4)]:
        distances = [i - j if i - j < 2 else i // group - j // group + 2 - 2 // group for group in groups]
        pairs = torch.complex(q[0, 1, i, :4], q[0, 1, i, 4:]) * torch.complex(k[0, 0, j, :4], -k[0, 0, j, 4:])
        angles = [angle * distance for angle, distance in zip(theta, distances, strict=True)]
        turned = [pair * complex(math.cos(angle), math.sin(angle)) for pair, angle in zip(pairs, angles, strict=True)]
        expected = sum(float(pair.real) for pair in turned) / math.sqrt(8)
        assert float(logits[0, 1, i, j]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("bands", [1, 3, 4])
def test_with_one_size_for_all_bands_it_is_self_extend(bands):
    reaches = DPE(window=5, groups=(3,) * bands), SelfExtend(window=5, group=3)
    outputs = [reference_attention(*inputs(60), Extension(reach=reach), FACTS) for reach in reaches]
    assert torch.equal(*outputs)


@pytest.mark.parametrize("reach", REACHES_BY_PAIRS)
@pytest.mark.parametrize("line", ["log_n", "alibi", "by_parts:factor=4", "abf:new_base=5000", "dynamic_ntk"])
def test_they_go_with_schedules_scales_and_biases(reach, line):
    extension = parse(f"{reach}+{line}", trained_len=32)
    q, k, v = inputs(90)
    out = attend(q.float(), k.float(), v.float(), extension, FACTS)
    torch.testing.assert_close(out.double(), reference_attention(q, k, v, extension, FACTS), rtol=0, atol=2e-6)


@pytest.mark.parametrize("reach", REACHES_BY_PAIRS)
def test_tokens_with_several_positions_are_placed_by_those(reach):
    q, k, v = inputs(20)
    rows = torch.stack([torch.arange(20), torch.arange(20) * 3 // 2])
    pairs = rows[torch.tensor([0, 1, 1, 0])].T[None]
    extension = parse(reach)
    out = attend(q.float(), k.float(), v.float(), extension, FACTS, Tokens(pair_positions_bjp=pairs))
    oracle = reference_attention(q, k, v, extension, FACTS, Tokens(pair_positions_bjp=pairs))
    torch.testing.assert_close(out.double(), oracle, rtol=0, atol=2e-6)
    assert not torch.allclose(oracle, reference_attention(q, k, v, extension, FACTS))


def test_for_biases_a_far_key_is_at_the_distance_of_the_smallest_group():
    places = torch.arange(60)
    reaches = DPE(window=5, groups=(7, 2, 4)), SelfExtend(window=5, group=2)
    seen = [effective_distances(reach, places, places) for reach in reaches]
    torch.testing.assert_close(*seen, rtol=0, atol=0, equal_nan=True)


def test_a_band_that_is_left_as_trained_meets_the_trained_length_first():
    reach = DPE(window=5, groups=(8, 1))
    assert [furthest(reach, row) for row in (31, 32)] == [31, 32]


def test_a_decay_is_refused():
    with pytest.raises(DoesNotFit, match="xpos needs one distance, but dpe gives each pair its own"):
        reference_attention(*inputs(9), parse("dpe:window=5,groups=[2]+frequencies.xpos"), FACTS)


def test_more_bands_than_pairs_are_refused():
    with pytest.raises(DoesNotFit, match="groups must be at most 4, one for each pair, got 5; name fewer bands"):
        parse("dpe:window=5,groups=[1,2,3,4,5]").check_against(FACTS)
    parse("dpe:window=5,groups=[1,2,3,4]").check_against(FACTS)


def test_a_window_as_long_as_training_is_refused():
    with pytest.raises(DoesNotFit, match="window must be at most 31 for a model trained on 32 tokens"):
        parse("dpe:window=32,groups=[2]").check_against(FACTS)


@pytest.mark.parametrize(
    ("groups", "rule"),
    [("[]", "one size for each band"), ("[2,0]", "at least 1"), ("[2.5]", "each item a whole number")],
)
def test_sizes_that_are_none_are_refused(groups, rule):
    with pytest.raises(InvalidValue, match=rule):
        parse(f"reach.dpe:window=5,groups={groups}")


@pytest.mark.parametrize("trained_len", [512, 4096])
def test_no_band_of_the_preset_goes_beyond_two_thirds(trained_len):
    """At the target length, in all eight bands; Self-Extend's group is the last band's."""
    lengths = {"trained_len": trained_len, "target_len": 8 * trained_len}
    reach, other = (parse(name, **lengths).reach for name in ("dpe", "self_extend"))
    assert reach.groups[-1] == min(reach.groups) == other.group
    places, turns = torch.tensor([8 * trained_len - 1]), torch.ones(16)
    far = reach.spans()[1]
    shown = far.q_rotated(places, turns) - far.k_rotated(torch.tensor([0]), turns)
    assert (shown - reach.window).min() > 0
    assert shown.max() <= trained_len * 2 / 3 + 1
