"""LaMPE: a case by hand, the slices of the authors' decoding step written out, and what the paper promises."""

import pytest
import torch

from ropewalk import Facts, parse, reference_attention
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.reach import LaMPE, effective_distances, furthest

from methods.reach.relative import relative

FACTS = Facts(trained_len=64, head_dim=8, heads=2, kv_heads=1)
SIZES = [(97, 16, 5, 32), (97, 16, 6, 32), (64, 8, 1, 13), (300, 40, 10, 64), (200, 24, 9, 61), (331, 32, 17, 100)]


def placed(length, head, tail, mapped):
    """The last row as the authors' decoding places it: three slices of the keys, each with its own positions."""
    scale = [position * mapped // (length - 1) for position in range(length)]
    first = tail
    while first + 1 < length and scale[first] == scale[first + 1]:
        first += 1
    bias_1 = head - (scale[head] + 1)
    bias_2 = (length - 1 - first) - scale[length - 1 - first] - bias_1
    query, row = length - 1, {}
    row |= {key: query - bias_2 - key for key in range(first)}
    row |= {key: scale[query] + bias_1 - scale[key] for key in range(first, length - head)}
    row |= {key: query - key for key in range(length - head, length)}
    return [row[key] for key in range(length)]


def test_by_hand():
    """m(x) = x // 2: two tokens a step. Keys nearer than 3 are true; t = 2 is rounded up to the end of its group, 3."""
    seen = relative(LaMPE(head=3, tail=2, length=11, mapped=5), 12)
    assert seen[10, :11].tolist() == [7, 6, 5, 5, 4, 4, 3, 3, 2, 1, 0]
    assert seen[9, :10].tolist() == [6, 5, 4, 4, 3, 3, 2, 2, 1, 0]
    assert seen[6, :7].tolist() == [4, 4, 3, 3, 2, 1, 0]
    assert seen[11].tolist() == [8, 7, 6, 5, 4, 4, 3, 3, 2, 2, 1, 0]  # beyond n: one more key is seen one by one


@pytest.mark.parametrize("sizes", SIZES)
def test_the_last_row_is_that_of_the_authors_decoding(sizes):
    length, head, tail, mapped = sizes
    reach = LaMPE(head=head, tail=tail, length=length, mapped=mapped)
    row = effective_distances(reach, torch.tensor([length - 1]), torch.arange(length))[0]
    assert row.tolist() == placed(*sizes)


@pytest.mark.parametrize("sizes", SIZES)
def test_distances_never_fall_and_never_jump(sizes):
    """The paper's two promises, for every row of the text; and its bound: nothing is beyond M + h + r."""
    length, head, tail, mapped = sizes
    reach = LaMPE(head=head, tail=tail, length=length, mapped=mapped)
    for row in range(length):
        seen = effective_distances(reach, torch.tensor([row]), torch.arange(row + 1))[0]
        assert set((seen[:-1] - seen[1:]).tolist()) <= {0, 1}
    assert furthest(reach, length - 1) <= mapped + head + tail + length // mapped + 1


def test_a_short_row_is_that_of_the_trained_model():
    i = torch.arange(8)
    seen = relative(LaMPE(head=8, tail=1, length=64, mapped=13), 8)
    expected = (i[:, None] - i).double().masked_fill(i > i[:, None], torch.nan)
    torch.testing.assert_close(seen, expected, rtol=0, atol=0, equal_nan=True)


def test_the_logits_are_those_of_the_distances():
    """By complex numbers: pair p at distance D turns by D theta_p."""
    generator = torch.Generator().manual_seed(5)
    q, k = torch.randn(1, 2, 40, 8, generator=generator), torch.randn(1, 1, 40, 8, generator=generator)
    reach = LaMPE(head=6, tail=3, length=40, mapped=15)
    distances = relative(reach, 40)
    theta = 10_000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    as_complex = [torch.complex(x[..., :4].double(), x[..., 4:].double()) for x in (q, k)]
    turned = torch.polar(torch.ones(40, 40, 4, dtype=torch.float64), distances.nan_to_num(0)[..., None] * theta)
    logits = torch.einsum("hid,jd,ijd->hij", as_complex[0][0], as_complex[1][0, 0].conj(), turned).real / 8**0.5
    weights = torch.softmax(logits.masked_fill(distances.isnan(), -torch.inf), -1)
    got = reference_attention(q, k, torch.eye(40)[None, None], parse(str(reach), trained_len=64), FACTS)
    torch.testing.assert_close(got[0], weights, rtol=0, atol=1e-12)


def test_a_furthest_key_beyond_training_is_refused():
    with pytest.raises(
        DoesNotFit, match=r"mapped must be such that the first key is at most 63 steps away, as in training; 71 now"
    ):
        parse("lampe:head=8,tail=4,length=400,mapped=60").check_against(FACTS)
    parse("lampe:head=8,tail=4,length=400,mapped=40").check_against(FACTS)
    parse("lampe:head=8,tail=4,length=400,mapped=60+yarn:factor=4").check_against(FACTS)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"head": 4, "tail": 2, "length": 20, "mapped": 19}, r"mapped must be below length - 1 \(19\)"),
        ({"head": 17, "tail": 2, "length": 20, "mapped": 10}, "head must be below 17"),
    ],
)
def test_sizes_that_leave_nothing_in_between_are_refused(sizes, match):
    with pytest.raises(InvalidValue, match=match):
        LaMPE(**sizes)
