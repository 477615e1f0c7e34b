"""Steps along the slopes: where they point, how long they are, and that they go somewhere."""

import math
from random import Random

import pytest
import torch

import ropewalk as rw
from ropewalk.search.goal import Measurements
from ropewalk.search.search_loop import look_around, search, winner
from ropewalk.search.spaces import Descent, Pairs
from ropewalk.search.spaces.descent import HALVINGS, LARGEST_STEP, direction
from ropewalk.search.spaces.pairs import MOST_SHARE, read_genes
from ropewalk.search.trials import MeasuredTrial, finished_trials

from search.synthetic import Distance, goal, is_dynamic, is_static, study

DIRECTION = (1.0, -0.5, 0.0, 0.25, -1.0)  # of four pairs and the temperature
YARN = rw.parse("yarn:factor=8")


def leader(extension=YARN, way=DIRECTION, number=0):
    return MeasuredTrial(number, "hand_set", {}, extension, {0: 1.0}, Measurements(1.0, 0.0, 1.0), {}, True, way)


def test_a_step_points_down_the_slopes():
    found = direction(torch.tensor([[2.0, -4.0, 0.0]] * 3, dtype=torch.float64))
    assert found[0] < 0 < found[1]
    assert found[2] == 0
    assert max(map(abs, found)) == 1


def test_steep_and_gentle_pairs_step_alike_where_both_are_certain():
    first, second = direction(torch.tensor([[100.0, 0.5], [100.0, 0.5]], dtype=torch.float64))
    assert first / second == pytest.approx(0.5 / 100, rel=1e-3)  # each as far as its slope is from its floor


def test_what_is_uncertain_does_not_move():
    slopes = torch.tensor([[5.0, 1.0], [-5.0, 1.1], [4.9, 0.9], [-4.8, 1.0]], dtype=torch.float64)
    assert direction(slopes)[0] == 0
    assert direction(slopes)[1] == -1
    assert direction(torch.zeros(3, 2)) == []


def test_steps_are_halved_and_then_given_up():
    past, lengths = [leader()], []
    shares, warmth = read_genes(goal(), YARN)
    while (values := Descent().proposed(goal(), past, Random(0))) is not None:
        found = read_genes(goal(), Descent().extension(goal(), values))
        lengths.append(shares[3] - found[0][3] if found[0][3] < shares[3] else found[0][3] - shares[3])
        assert found[1] == pytest.approx(warmth * math.exp(-lengths[-1] * 4), rel=1e-2)
        past.append(leader(Descent().extension(goal(), values), (), len(past)))
    assert lengths == pytest.approx([0.25 * LARGEST_STEP / 2**n for n in range(HALVINGS)], abs=1e-3)


def test_shares_stay_within_their_bounds():
    values = Descent().proposed(goal(), [leader(way=(-1.0, -1.0, 1.0, 1.0, 0.0))], Random(0))
    assert all(0 <= value <= MOST_SHARE for name, value in values.items() if name.startswith("share"))


def test_without_a_direction_nothing_is_proposed():
    assert Descent().proposed(goal(), [leader(way=())], Random(0)) is None
    assert Descent().proposed(goal(), [], Random(0)) is None


def test_it_betters_what_is_static_and_pairs_what_is_monotone_too():
    falling = Descent().extension(goal(), {"temperature": 1.0} | {f"share_{n:03}": (4 - n) / 4 for n in range(4)})
    assert Descent().betters(goal(), falling)
    assert not Pairs().betters(goal(), falling)
    assert Pairs().betters(goal(), YARN)
    assert not Descent().betters(goal(), rw.parse("rerope", trained_len=32))


def test_it_gets_nearer_than_children_alone():
    found = {}
    for leads in (True, False):
        own = study()
        search(own, goal(), Distance(), trials=45, leads=leads)
        found[leads] = winner(own, goal())
        assert any(each.direction for each in finished_trials(own)) == leads
    assert found[True].figures.loss < found[False].figures.loss / 2


def test_slopes_are_asked_for_once_and_of_the_best_alone():
    own, objective = study(), Distance()
    asked = []
    objective.slopes = lambda extension: asked.append(extension)
    by_hand = own.sampler.seeds
    look_around(own, goal(), objective, by_hand)
    assert not asked  # nothing was tried
    search(own, goal(), objective, trials=len(by_hand))
    assert not asked  # something set by hand was left until the last
    for _ in range(2):
        look_around(own, goal(), objective, by_hand)
    assert asked == [winner(own, goal()).extension]


def test_what_is_no_table_has_no_slopes():
    own, objective = study(takes=is_dynamic), Distance()
    objective.rungs = lambda extension: iter([1.0])
    objective.figures = lambda extension: Measurements(1.0, 0.0, 1.0)
    objective.slopes = lambda extension: pytest.fail("asked for slopes of what is dynamic")
    search(own, goal(), objective, trials=12)


def test_slopes_are_left_alone_where_no_engine_takes_what_they_lead_to():
    def named(extension):
        return is_static(extension) and extension.frequencies_or_rope.name != "longrope"

    own, objective = study(takes=named), Distance()
    objective.slopes = lambda extension: pytest.fail("asked for slopes of which nothing comes")
    search(own, goal(), objective, trials=12)
    assert winner(own, goal()).space != "descent"
