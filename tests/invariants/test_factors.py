"""What holds for every method of one factor."""

import dataclasses

import pytest
import torch

from ropewalk.methods.frequencies import RoPE
from ropewalk.methods.reach import Reach
from ropewalk.methods.record import parameters
from ropewalk.testing import check_contract, check_learning, check_page

from examples import EVERY, FACTS, FREQUENCIES, REACH, SCALES, SURGERY
from invariants.probe import STATE, WIDE

TRAINED = RoPE().table(WIDE, 1).inv_freq
LENGTHS = (1, 4096, 5000, 9000, 40_000)


def with_factor(specs):
    return [spec for spec in specs if "factor" in [parameter.name for parameter in parameters(type(spec))]]


@pytest.mark.parametrize("spec", EVERY, ids=str)
@pytest.mark.parametrize("facts", [FACTS, WIDE], ids=["small", "wide"])
def test_what_packages_ask_of_their_methods_holds_for_ours(spec, facts):
    check_contract(spec, facts)
    check_learning(spec, FACTS)
    check_page(spec)


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


@pytest.mark.parametrize("spec", with_factor(SCALES), ids=str)
def test_a_temperature_for_a_factor_of_one_is_one(spec):
    assert (dataclasses.replace(spec, factor=1).scale(torch.arange(9), FACTS, {}) == 1).all()


@pytest.mark.parametrize("spec", SURGERY, ids=str)
def test_surgery_leaves_its_input_alone(spec):
    before = {name: value.clone() for name, value in STATE.items()}
    state, _ = spec.convert(STATE, FACTS)
    assert STATE.keys() == before.keys()
    assert all(torch.equal(STATE[name], before[name]) for name in STATE)
    assert any(name not in STATE or state[name].shape != STATE[name].shape for name in state)


def test_reach_is_about_places_only():
    assert all(isinstance(spec, Reach) for spec in REACH)
