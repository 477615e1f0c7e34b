"""What holds for every method of one factor."""

import dataclasses

import pytest
import torch

from ropewalk.methods.biases.bias import Bias
from ropewalk.methods.frequencies import RoPE
from ropewalk.methods.reach import Reach
from ropewalk.methods.record import parameters
from ropewalk.methods.scales.scale import Scale

from examples import BIASES, DECODING, FACTS, FREQUENCIES, POSITIONS, REACH, SCALES, SURGERY
from invariants.probe import STATE, WIDE, generator
from methods.reach.relative import relative

TRAINED = RoPE().table(WIDE, 1).inv_freq
LENGTHS = (1, 4096, 5000, 9000, 40_000)


def with_factor(specs):
    return [spec for spec in specs if "factor" in [parameter.name for parameter in parameters(type(spec))]]


@pytest.mark.parametrize("spec", FREQUENCIES, ids=str)
@pytest.mark.parametrize("length", LENGTHS)
def test_frequencies_are_finite_and_fall_with_the_pair(spec, length):
    inv_freq, log_decay = spec.table(WIDE, length)
    assert inv_freq.dtype == log_decay.dtype == torch.float64
    assert inv_freq.shape == log_decay.shape
    assert inv_freq.isfinite().all()
    assert log_decay.isfinite().all()
    assert (inv_freq >= 0).all()
    assert (inv_freq.diff() <= 0).all()
    assert (log_decay <= 0).all()


@pytest.mark.parametrize("spec", with_factor(FREQUENCIES), ids=str)
def test_a_factor_of_one_is_the_identity(spec):
    got = dataclasses.replace(spec, factor=1).table(WIDE, 1).inv_freq
    torch.testing.assert_close(got, TRAINED, rtol=1e-15, atol=0)


@pytest.mark.parametrize("spec", with_factor(FREQUENCIES), ids=str)
def test_no_pair_is_sped_up_or_slowed_beyond_the_factor(spec):
    slowing = TRAINED / spec.table(WIDE, 1).inv_freq
    assert (slowing >= 1 - 1e-12).all()
    assert (slowing <= spec.factor * (1 + 1e-12)).all()


@pytest.mark.parametrize("spec", with_factor(FREQUENCIES), ids=str)
def test_a_larger_factor_never_speeds_a_pair_up(spec):
    wider = dataclasses.replace(spec, factor=2 * spec.factor).table(WIDE, 1).inv_freq
    assert (wider <= spec.table(WIDE, 1).inv_freq * (1 + 1e-12)).all()


@pytest.mark.parametrize("spec", REACH, ids=str)
def test_spans_are_disjoint_and_look_back_only(spec):
    """`relative` refuses overlaps; nothing ahead is seen, and the query always sees itself where it stands."""
    seen = relative(spec, 70)
    assert seen.triu(1).isnan().logical_or(~torch.ones(70, 70).triu(1).bool()).all()
    assert (seen.diagonal() == 0).all()
    assert not (seen < 0).any()


@pytest.mark.parametrize("spec", REACH, ids=str)
def test_spans_are_elementwise_and_bounded(spec):
    i = torch.arange(70)
    for span in spec.spans():
        start, stop = span.bounds(i)
        assert ((start >= 0) & (start <= stop) & (stop <= i + 1)).all()
        for rows in (i[33:34], i[5:60:7]):
            assert torch.equal(torch.stack(span.bounds(rows)), torch.stack(span.bounds(i))[:, rows])
            assert torch.equal(span.q_at(rows), span.q_at(i)[rows])
            assert torch.equal(span.k_at(rows), span.k_at(i)[rows])


@pytest.mark.parametrize("spec", REACH, ids=str)
def test_places_are_exact_at_a_billion(spec):
    """Whole numbers or float64: a place beyond 2^24 must not be rounded to float32."""
    i = torch.tensor([2**30 + 1, 2**30 + 2])
    for span in spec.spans():
        for place in (span.q_at(i), span.k_at(i)):
            assert place.dtype in (torch.int64, torch.float64)


@pytest.mark.parametrize("spec", BIASES, ids=str)
def test_biases_have_a_head_dimension_and_stay_finite(spec: Bias):
    weights = spec.weights(FACTS, generator())
    distance = torch.tensor([[0, 1, 31], [1000, 65_536, 2**30]])
    got = spec.bias(distance, distance, FACTS, weights)
    assert got.shape == (FACTS.heads, 2, 3)
    assert got.dtype == torch.float64
    assert got.isfinite().all()
    assert all(weight.dtype == torch.float64 for weight in weights.values())


@pytest.mark.parametrize("spec", BIASES, ids=str)
def test_biases_say_truly_whether_the_distance_is_all(spec: Bias):
    weights = spec.weights(FACTS, generator())
    distance = torch.arange(50)
    here, there = (spec.bias(distance, distance + shift, FACTS, weights) for shift in (0, 4000))
    assert torch.equal(here, there) == spec.of_distance_alone


@pytest.mark.parametrize("spec", [*BIASES, *SCALES], ids=str)
def test_everything_learned_receives_a_gradient(spec):
    weights = {name: value.requires_grad_() for name, value in spec.weights(FACTS, generator()).items()}
    if not weights:
        pytest.skip("learns nothing")
    places = torch.arange(1, 3000)
    if isinstance(spec, Bias):
        total = spec.bias(places, places, FACTS, weights).square().sum()
    else:
        total = spec.scale(places, FACTS, weights).square().sum()
    total.backward()
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in weights.values())


@pytest.mark.parametrize("spec", SCALES, ids=str)
def test_scales_are_positive_and_one_per_row(spec: Scale):
    got = spec.scale(torch.arange(1, 200), FACTS, spec.weights(FACTS))
    assert got.shape[0] in (1, FACTS.heads)
    assert got.shape[1:] == (199,)
    assert got.dtype == torch.float64
    assert (got > 0).all()


@pytest.mark.parametrize("spec", SCALES, ids=str)
def test_scales_say_truly_whether_rows_differ(spec: Scale):
    """A model trained on a million tokens shows it in the second million."""
    facts = dataclasses.replace(FACTS, trained_len=10**6)
    scale = spec.scale(torch.tensor([0, 1, 10**6 - 1, 10**6, 2 * 10**6]), facts, spec.weights(facts))
    assert bool((scale != scale[:, :1]).any()) == spec.of_row


@pytest.mark.parametrize("spec", SCALES, ids=str)
def test_scales_keep_the_shape_of_a_batch(spec: Scale):
    weights, rows = spec.weights(FACTS), torch.arange(60).view(2, 30)
    flat = spec.scale(rows.flatten(), FACTS, weights)
    assert torch.equal(spec.scale(rows, FACTS, weights).flatten(1), flat)


@pytest.mark.parametrize("spec", with_factor(SCALES), ids=str)
def test_a_temperature_for_a_factor_of_one_is_one(spec):
    assert (dataclasses.replace(spec, factor=1).scale(torch.arange(9), FACTS, {}) == 1).all()


@pytest.mark.parametrize("spec", POSITIONS, ids=str)
@pytest.mark.parametrize("length", [0, 1, 2, 63, 200])
@pytest.mark.parametrize("training", [False, True])
def test_positions_ascend_from_zero_on(spec, length, training):
    numbers = spec.number(length, generator() if training else None)
    assert numbers.shape == (length,)
    assert numbers.dtype == torch.int64
    assert (numbers >= 0).all()
    assert (numbers.diff() > 0).all()


@pytest.mark.parametrize("spec", DECODING, ids=str)
def test_combining_leaves_its_input_alone(spec):
    rows = 4 if spec.of_contexts else 2
    logp = torch.randn(rows, 9, dtype=torch.float64, generator=generator()).log_softmax(-1)
    before = logp.clone()
    combined = spec.combine(logp, 1)
    assert torch.equal(logp, before)
    assert combined.logp.shape == (9,)
    assert combined.chosen is None or 1 <= combined.chosen <= 3


@pytest.mark.parametrize("spec", SURGERY, ids=str)
def test_surgery_leaves_its_input_alone(spec):
    before = {name: value.clone() for name, value in STATE.items()}
    state, _ = spec.convert(STATE, FACTS)
    assert STATE.keys() == before.keys()
    assert all(torch.equal(STATE[name], before[name]) for name in STATE)
    assert any(name not in STATE or state[name].shape != STATE[name].shape for name in state)


def test_reach_is_about_places_only():
    assert all(isinstance(spec, Reach) for spec in REACH)
