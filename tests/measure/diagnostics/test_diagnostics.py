"""Diagnostics against cases worked by hand: even attention, known biases, planes and turns."""

import math
from dataclasses import replace

import pytest
import torch

import ropewalk as rw
from ropewalk.measure.diagnostics.attention_weights import (
    decay,
    entropy,
    logit_growth,
    mass_of_first,
    mass_of_last,
    without_sinks,
)
from ropewalk.measure.diagnostics.pass_states import (
    bias_terms,
    distance_bins,
    middles,
    pair_angles,
    some_rows,
    states_in_a_plane,
)
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.methods.reach import effective_distances

from hf.models import tiny

LENGTH = 24
IDS = torch.randint(3, 97, (2, LENGTH), generator=torch.Generator().manual_seed(3))
FACTS = rw.Facts(trained_len=64, head_dim=4, base=10_000.0)  # pairs of 1 and 0.01 radians a step


@pytest.fixture(scope="module")
def even():
    """A model whose queries are all 0: what is within reach is seen evenly."""
    model = tiny("llama", num_hidden_layers=2)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data.zero_()
    return model


def test_rows_are_evenly_spaced_and_end_with_the_last():
    assert some_rows(100, 4) == [24, 49, 74, 99]
    assert some_rows(3, 48) == [0, 1, 2]
    with pytest.raises(rw.InvalidValue, match="rows must be at least 1"):
        some_rows(3, 0)


def test_bins_of_distance_are_single_near_by_and_wider_further_on():
    bins = distance_bins(64)
    assert bins[:7].tolist() == list(range(7))
    assert (bins.diff() >= 0).all()
    assert (bins.diff() <= 1).all()
    widths = torch.bincount(bins)
    assert int(widths[-2]) > int(widths[10]) >= 1
    at = middles(bins)
    assert at[:7] == tuple(range(7))
    assert at[-1] == pytest.approx(torch.arange(64)[bins == bins[-1]].double().mean().item())


def test_even_attention_has_the_logarithm_of_its_keys_as_entropy(even):
    with rw.extended(even, rw.Extension(), mode="attention"):
        found = entropy(even, IDS, rows=6)
    assert found.at == (3, 7, 11, 15, 19, 23)
    for layer in found.layers:
        assert layer == pytest.approx([math.log(row + 1) for row in found.at])
    with rw.extended(even, "window:window=5"):
        for layer in entropy(even, IDS, rows=6).layers:
            assert layer == pytest.approx([math.log(min(row + 1, 5)) for row in found.at])


def test_even_attention_gives_each_key_its_share(even):
    with rw.extended(even, rw.Extension(), mode="attention"):
        for found in (mass_of_last(even, IDS, keys=6, rows=6), mass_of_first(even, IDS, keys=6, rows=6)):
            for layer in found.layers:
                assert layer == pytest.approx([min(1, 6 / (row + 1)) for row in found.at])
        with pytest.raises(rw.InvalidValue, match="keys must be at least 1"):
            mass_of_last(even, IDS, keys=0)
    with rw.extended(even, "streaming:window=4,n_sink=2"):
        first = mass_of_first(even, IDS, keys=2, rows=6)
        last = mass_of_last(even, IDS, keys=4, rows=6)
    for near, sinks in zip(last.layers, first.layers, strict=True):
        assert sinks[1:] == pytest.approx([2 / 6] * 5)
        assert near[1:] == pytest.approx([4 / 6] * 5)


def test_logits_by_distance_are_those_of_a_bias_when_there_is_nothing_else(even):
    """ALiBi's slopes for four heads are 1/4, 1/16, 1/64, 1/256."""
    slopes = torch.tensor([4.0**-n for n in (1, 2, 3, 4)], dtype=torch.float64)
    with rw.extended(even, "alibi"):
        growth = logit_growth(even, IDS, rows=LENGTH)
    bins = distance_bins(LENGTH)
    for at in range(7):  # bins of one distance
        assert growth.mean.at[at] == at
        for layer in range(2):
            assert growth.mean.layers[layer][at] == pytest.approx(float(-(slopes * at).mean()), abs=1e-6)
            assert growth.largest.layers[layer][at] == pytest.approx(-at / 256, abs=1e-6)
            assert growth.spread.layers[layer][at] == pytest.approx(float((slopes * at).std(correction=0)), abs=1e-6)
    assert len(growth.mean.layers[0]) == int(bins.max()) + 1


def test_what_is_out_of_reach_has_no_logits(even):
    with rw.extended(even, "window:window=3"):
        growth = logit_growth(even, IDS, rows=4)
    for curves in growth:
        assert [math.isnan(value) for value in curves.layers[0][:5]] == [False] * 3 + [True] * 2


@pytest.fixture(scope="module")
def biased():
    """A model with biases on queries and keys that are not small beside the rest."""
    model = tiny("qwen2", num_hidden_layers=1)
    for name, value in model.named_parameters():
        if name.endswith(("q_proj.bias", "k_proj.bias")):
            value.data = torch.randn(value.shape, generator=torch.Generator().manual_seed(len(name)))
    return model


def test_terms_add_up_to_the_logit_and_the_last_is_a_function_of_distance(biased):
    with rw.extended(biased, "rerope:window=6+log_n"):
        terms, whole = bias_terms(biased, IDS, rows=5), logit_growth(biased, IDS, rows=5).mean
    total = [sum(values) for values in zip(*(curves.layers[0] for curves in terms), strict=True)]
    assert total == pytest.approx(list(whole.layers[0]), rel=1e-4, abs=1e-5)
    assert terms.any

    with rw.extended(biased, rw.Extension(), mode="attention"):
        last = bias_terms(biased, IDS, rows=5).biases.layers[0]
    own = biased.model.layers[0].self_attn
    a, b = own.q_proj.bias.detach().double().view(4, 16), own.k_proj.bias.detach().double().view(2, 16)
    a, b = (torch.complex(x[:, :8], x[:, 8:]) for x in (a, b.repeat_interleave(2, 0)))
    theta = 10_000 ** (-torch.arange(8, dtype=torch.float64) / 8)
    expected = [float((a * b.conj() * torch.exp(1j * s * theta)).real.sum(1).mean()) / 4 for s in range(7)]
    assert list(last[:7]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_model_without_biases_has_one_term(even):
    with rw.extended(even, "log_n"):
        assert not bias_terms(even, IDS, rows=2).any


def test_a_plane_shows_the_two_largest_shares_of_the_variance():
    model = tiny("llama", num_hidden_layers=2)
    planes = states_in_a_plane(model, IDS, layers=[0, 2])
    with torch.no_grad():
        states = model(IDS, output_hidden_states=True).hidden_states
    for plane in planes:
        x = states[plane.layer].double().flatten(0, 1)
        singular = torch.linalg.svdvals(x - x.mean(0))
        points = torch.tensor(plane.points, dtype=torch.float64)
        torch.testing.assert_close(points.norm(dim=0), singular[:2])
        assert abs(float(points[:, 0] @ points[:, 1])) < 1e-6 * float(singular[0] ** 2)
        assert plane.share == pytest.approx(float(singular[:2].square().sum() / singular.square().sum()))
        assert plane.positions == (*range(LENGTH), *range(LENGTH))
    assert [plane.layer for plane in states_in_a_plane(model, IDS)] == [1, 2]
    deep = tiny("llama", num_hidden_layers=4)
    assert [plane.layer for plane in states_in_a_plane(deep, IDS[:, :3])] == [1, 2, 4]
    with pytest.raises(rw.InvalidValue, match="layers must be from 0"):
        states_in_a_plane(model, IDS, layers=[3])


STREAM = "streaming:window=6,n_sink=3"


def test_sinks_are_kept_replaced_and_removed():
    model, stream = tiny("llama", num_hidden_layers=2), rw.parse(STREAM)
    found = without_sinks(model, IDS, stream=stream, substitute=5)
    other = IDS.clone()
    other[:, :3] = 5
    for got, ids, text in zip(found, (IDS, other, IDS), (STREAM, STREAM, "window:window=9"), strict=True):
        assert got.shape == (2, LENGTH - 3)
        with rw.extended(model, text):
            torch.testing.assert_close(got, token_losses(model, ids).losses_bn[:, -(LENGTH - 3) :])
    assert not torch.allclose(found.kept[:, -1], found.removed[:, -1])
    with pytest.raises(rw.InvalidValue, match="stream must be an extension whose reach is sinks"):
        without_sinks(model, IDS, stream=rw.parse("yarn:factor=2"), substitute=5)
    with pytest.raises(rw.InvalidValue, match="ids must be texts of more than 4 tokens"):
        without_sinks(model, IDS[:, :4], stream=stream, substitute=5)


def test_turns_by_hand():
    """64 steps of 1 and of 0.01 radians, and what is asked for in 256."""
    fast, slow = pair_angles(rw.Extension(), FACTS, 256)
    assert (fast.theta, slow.theta) == (1, pytest.approx(0.01))
    assert (fast.turns_trained, slow.turns_trained) == pytest.approx((64 / math.tau, 0.64 / math.tau))
    assert (fast.turns_asked, slow.turns_asked) == pytest.approx((256 / math.tau, 2.56 / math.tau))
    assert (fast.unseen, slow.unseen) == (False, True)


@pytest.mark.parametrize(
    ("text", "slowed_by", "asked"),
    [
        ("pi:factor=4", 4, 0.64),  # all of the stretch
        ("rerope:window=16", 1, 0.17),  # no distance above 16 is shown
        ("window:window=16", 1, 0.16),
        ("nope", math.inf, 0),  # nothing turns
    ],
)
def test_methods_ask_for_less(text, slowed_by, asked):
    slow = pair_angles(rw.parse(text), FACTS, 256)[-1]
    assert slow.slowed_by == pytest.approx(slowed_by)
    assert slow.turns_asked == pytest.approx(asked / math.tau)
    assert not slow.unseen


def by_hand(distance):
    return (math.cos(distance) + math.cos(0.01 * distance)) / 2


def test_decay_by_hand():
    expected = [by_hand(s) for s in range(100)]
    assert decay(rw.Extension(), FACTS, 100).tolist() == pytest.approx(expected)
    assert decay(rw.parse("pi:factor=2"), FACTS, 100).tolist() == pytest.approx([by_hand(s / 2) for s in range(100)])
    shown_near = [by_hand(min(s, 16)) for s in range(100)]
    assert decay(rw.parse("rerope:window=16"), FACTS, 100).tolist() == pytest.approx(shown_near)
    scaled = decay(rw.parse("scales.temperature:value=2"), FACTS, 9)
    assert scaled.tolist() == pytest.approx([float(scaled[0]) * by_hand(s) for s in range(9)])
    assert float(scaled[0]) != 1
    biased = decay(rw.parse("biases.alibi"), FACTS, 9) - decay(rw.Extension(), FACTS, 9)
    assert biased.tolist() == pytest.approx([-s / 2**8 for s in range(9)])  # the slope of an only head


def test_decay_is_of_the_turning_part_and_ends_where_reach_does():
    partial = decay(rw.Extension(), replace(FACTS, rotary_dim=2), 9)
    assert partial.tolist() == pytest.approx([(math.cos(s) + 1) / 2 for s in range(9)])
    grouped = decay(rw.Extension(), replace(FACTS, heads=4, kv_heads=2, softcap=1.0, sinks=True), 9)
    assert grouped.tolist() == pytest.approx([by_hand(s) for s in range(9)])
    assert decay(rw.parse("window:window=3"), FACTS, 9).isnan().tolist() == [False] * 3 + [True] * 6
    lowest = rw.Extension(layers={0: rw.parse("window:window=2")})
    assert decay(lowest, FACTS, 5).isnan().tolist() == [False] * 2 + [True] * 3


@pytest.mark.parametrize("line", ["rerope:window=16", "alibi", "t5", "dynamic_ntk", "streaming:window=9,n_sink=2"])
def test_the_decay_of_some_distances_is_a_part_of_the_whole(line):
    facts, some = replace(FACTS, heads=4, trained_len=48), [0, 1, 7, 60, 99]
    extension = rw.parse(line, trained_len=48, target_len=100)
    whole = decay(extension, facts, 100)
    torch.testing.assert_close(decay(extension, facts, 100, some), whole[some], equal_nan=True)


def test_distances_shown():
    rows = effective_distances(rw.parse("rerope:window=3").reach_or_causal, torch.tensor([1, 5]), torch.arange(6))
    assert rows[1].tolist() == [3, 3, 3, 2, 1, 0]
    assert rows[0, :2].tolist() == [1, 0]
    assert rows[0, 2:].isnan().all()


def test_pairs_that_stop_turn_less_than_pairs_that_go_on():
    facts = rw.Facts(trained_len=64, head_dim=8, heads=1, kv_heads=1, base=100.0)
    line = "rerope_by_parts:window=16,leak=4,low_turns=0.5,high_turns=2"
    angles = pair_angles(rw.parse(line), facts, 256)
    reached = [round(one.turns_asked * 2 * math.pi / one.theta, 6) for one in angles]
    turns = [64 * 100 ** (-pair / 4) / (2 * math.pi) for pair in range(4)]  # 10.2, 3.2, 1.02, 0.32
    share = (1 - (turns[2] - 0.5) / 1.5) / 4
    assert reached == [17, 17, round(17 + share * (255 - 16), 6), 17 + (255 - 16) / 4]
