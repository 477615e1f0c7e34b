"""Keys are left out only where they provably weigh nothing."""

import math

import pytest
import torch

from ropewalk import Facts, parse
from ropewalk.attention import attend
from ropewalk.attention.backends import bias_diagonals, bias_pruning
from ropewalk.attention.backends.bias_pruning import (
    NEGLIGIBLE,
    NORM_TOKENS,
    HeadBand,
    _bands_of_row,
    _worthwhile,
    head_bands,
)
from ropewalk.equation import reference_weights

from attention.problems import CLOSE, assert_equal

FACTS = Facts(trained_len=512, head_dim=8, heads=4, kv_heads=2)


@pytest.fixture(autouse=True)
def small_texts_too(monkeypatch):
    monkeypatch.setattr(bias_pruning, "FEWEST_PAIRS", 0)


def drawn(queries=900, keys=900, dtype=torch.float32, batch=1, size=1.0):
    rng = torch.Generator().manual_seed(0)
    shapes = ((batch, 4, queries, 8), (batch, 2, keys, 8), (batch, 2, keys, 8))
    q, k, v = (torch.randn(shape, generator=rng) for shape in shapes)
    return [(q * size).to(dtype), k.to(dtype), v.to(dtype)]


def opposed(size=6.0, dtype=torch.float32):
    """Every key is opposed to all queries except the first one, which matches all of them at any distance."""
    q, k, v = drawn()
    q[:], k[:], v[:, :, 0] = size / math.sqrt(8), -size / math.sqrt(8), 4.0
    k[:, :, 0] *= -1
    return [x.to(dtype) for x in (q, k, v)]


@pytest.fixture
def cut(monkeypatch):
    """The bands that attention used."""
    bands, original = [], bias_pruning.head_bands

    def noted(*arguments):
        answer = original(*arguments)
        bands.extend(answer)
        return answer

    monkeypatch.setattr(bias_diagonals, "head_bands", noted)
    return bands


def assert_equals_the_oracle(text, vectors, **kwargs):
    assert_equal(parse(text), vectors, FACTS, **kwargs)


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("text", ["alibi", "biases.alibi+window:window=700", "alibi+scales.log_n", "kerple_power"])
def test_pruned_attention_equals_the_oracle(text, dtype, cut):
    for queries in (900, 433):
        assert_equals_the_oracle(text, drawn(queries, dtype=dtype))
        assert min(band.width for band in cut) < 250
        cut.clear()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("size", [2.0, 4.0, 6.0, 8.0])
def test_a_far_key_that_all_look_for_is_not_lost(size, dtype):
    """The bound is tight: without the nearest key's logit in it, the one key that matters would be cut."""
    assert_equals_the_oracle("alibi", opposed(size, dtype))


def test_the_longest_key_and_the_most_searching_query_count_wherever_they_are():
    """More tokens than one block of norms: the one key that matters is among the first, and some of the last
    queries alone match it, across a bias of a hundred nats."""
    facts, size = Facts(trained_len=512, head_dim=8, heads=2), 18.0
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 1600, 8, generator=rng).double() for _ in range(3))
    q, k = 0.01 * q, 0.01 * k
    q[:, :, NORM_TOKENS::2], k[:, :, 0] = size / math.sqrt(8), size / math.sqrt(8)
    assert_equal(parse("alibi"), [q, k, v], facts)
    assert (reference_weights(q, k, parse("alibi"), facts)[0, 0, NORM_TOKENS::2, 0] > 0.9).all()


def weight_beyond(f_hx, q, k, width):
    """The largest share of a row's weight beyond this many distances, by head, from all logits."""
    n = q.shape[2]
    distance = torch.arange(n)[:, None] - torch.arange(n)
    logit = q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT / math.sqrt(q.shape[-1])
    logit = (logit + f_hx[:, distance.clamp(min=0)]).masked_fill(distance < 0, -torch.inf)
    return (torch.softmax(logit, -1) * (distance >= width)).sum(-1).amax(-1)[0]


SHAPES = {
    "line": lambda d: -0.3 * d,
    "rising first": lambda d: -0.3 * (d - 50.0).abs(),
    "a far hill": lambda d: -0.3 * d + 60.0 * torch.exp(-(((d - 150.0) / 20) ** 2)),
    "square": lambda d: -0.01 * d**2,
    "logarithm": lambda d: -30.0 * torch.log1p(d),
    "a cliff": lambda d: torch.where(d < 100, 0.0, -1e4),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vectors", [drawn, opposed])
def test_the_certificate_holds_for_any_shape(shape, vectors):
    q, k, _ = vectors()
    f_hx = SHAPES[shape](torch.arange(900.0).double()).expand(4, -1)
    for band in head_bands(f_hx, q, k, slice(0, 900), 256):
        assert (weight_beyond(f_hx, q, k, band.width)[band.heads] <= 2.0**-24).all()
        if vectors is drawn:
            assert band.width < 800  # all of these shapes can be cut
        if shape == "a far hill":
            assert band.width > 160


def test_no_more_is_computed_than_the_bound_requires():
    """All keys but the nearest aligned with all queries: the share beyond the width is what the formula says."""
    q, k, _ = (torch.zeros(1, 1, 1000, 8) for _ in range(3))
    q[..., 0], k[..., 0] = math.sqrt(8.0), 3.0
    slope, (band,) = 0.2, head_bands(-0.2 * torch.arange(1000.0).double()[None], q, k, slice(0, 1000), 256)
    beyond = lambda width: math.exp(-slope * width) / (1 - math.exp(-slope))  # noqa: E731
    assert beyond(band.width) <= 2.0**-24 < 1.02 * beyond(band.width - 1)


@pytest.mark.parametrize("spoiled", [1e3, 1e25, math.inf, math.nan])
def test_nothing_is_cut_where_norms_forbid_it(spoiled):
    q, k, _ = drawn()
    k[0, 1, 17, 3] = spoiled
    q[0, :, 17] = torch.eye(8)[3]  # the key's own query sees it gladly
    f_hx = -0.3 * torch.arange(900.0).double().expand(4, -1)
    *others, last = head_bands(f_hx, q, k, slice(0, 900), 256)
    assert last == HeadBand(slice(0, 1), slice(2, 4), slice(1, 2), 900)
    assert all(band.width < 900 for band in others)


@pytest.mark.parametrize("f", [lambda d: 0 * d, lambda d: -torch.log1p(d), lambda d: torch.cos(d), lambda d: d / 9])
def test_shapes_that_do_not_fall_far_enough_cost_no_look_at_the_norms(f, monkeypatch):
    monkeypatch.setattr(bias_pruning, "_demand", None)
    q, k, _ = drawn(batch=2)
    f_hx = f(torch.arange(900.0).double()).expand(4, -1)
    assert head_bands(f_hx, q, k, slice(0, 900), 256) == [HeadBand(slice(0, 2), slice(0, 4), slice(0, 2), 900)]


def test_few_queries_are_not_worth_it():
    q, k, _ = drawn(queries=100)
    f_hx = -torch.arange(900.0).double().expand(4, -1)
    assert head_bands(f_hx, q, k, slice(800, 900), 256) == bias_pruning.all_heads(q, k, 900)


def test_short_texts_are_not_worth_it(monkeypatch):
    monkeypatch.undo()
    q, k, _ = drawn(queries=500, keys=500)
    f_hx = -torch.arange(500.0).double().expand(4, -1)
    assert head_bands(f_hx, q, k, slice(0, 500), 256) == bias_pruning.all_heads(q, k, 500)


def test_a_head_that_saves_little_stays_with_the_others():
    """For 1,000 rows in blocks of 256, a width of 300 computes 0.80 of the pairs, and one of 400 computes 0.88."""
    seen = torch.arange(1, 1001)
    assert _worthwhile(torch.tensor([[300, 400, 1000]]), seen, 256).tolist() == [[300, 1000, 1000]]


def test_a_row_does_not_depend_on_its_batch_mates():
    vectors = drawn(batch=3)
    vectors[0][1] *= 30
    whole = attend(*vectors, parse("alibi"), FACTS)
    for row in range(3):
        assert torch.equal(whole[row], attend(*(x[row : row + 1] for x in vectors), parse("alibi"), FACTS)[0])


def test_heads_of_one_width_go_together_as_their_key_heads_allow():
    row = slice(0, 1)

    def parts(widths, groups):
        return [
            (b.heads.start, b.heads.stop, b.groups.start, b.groups.stop, b.width)
            for b in _bands_of_row(row, widths, groups)
        ]

    assert parts([5, 5, 5, 5], 4) == [(0, 4, 0, 4, 5)]
    assert parts([5, 7, 7, 7], 4) == [(0, 1, 0, 1, 5), (1, 4, 1, 4, 7)]
    assert parts([5, 7, 7, 7], 2) == [(0, 1, 0, 1, 5), (1, 2, 0, 1, 7), (2, 4, 1, 2, 7)]
    assert parts([5, 7, 7, 5], 1) == [(0, 1, 0, 1, 5), (1, 3, 0, 1, 7), (3, 4, 0, 1, 5)]
    assert parts([5, 7, 7, 7, 7, 7, 7, 8], 4) == [
        (0, 1, 0, 1, 5),
        (1, 2, 0, 1, 7),
        (2, 6, 1, 3, 7),
        (6, 7, 3, 4, 7),
        (7, 8, 3, 4, 8),
    ]


def test_every_head_of_every_row_has_one_band():
    q, k, _ = drawn(batch=3)
    q[1] *= 30
    f_hx = -torch.tensor([0.5, 0.1, 0.06, 0.001])[:, None].double() * torch.arange(900.0)
    covered = torch.zeros(3, 4, dtype=torch.int64)
    for band in head_bands(f_hx, q, k, slice(0, 900), 256):
        covered[band.batch, band.heads] += 1
        members = q.shape[1] // k.shape[1]
        assert {head // members for head in range(4)[band.heads]} == set(range(2)[band.groups])
    assert (covered == 1).all()


def test_fewer_keys_are_computed_in_lower_precision():
    widths = []
    for dtype in NEGLIGIBLE:
        q, k, _ = drawn(dtype=dtype)
        widths.append(head_bands(-torch.arange(900.0).double().expand(4, -1), q, k, slice(0, 900), 256)[0].width)
    assert widths[0] > widths[1] > widths[2]
