"""The loop: it finds what is to be found, keeps to its conditions, goes on where it was stopped."""

import math
import subprocess
import sys
from collections import Counter
from threading import Thread

import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from ropewalk.errors import DoesNotFit, Unreadable
from ropewalk.search.search_loop import OutOfTime, run_trial, search, winner
from ropewalk.search.spaces.pairs import genes
from ropewalk.search.studies import MAX_GAP, OWNER, falls_behind, next_trial, release_the_dead
from ropewalk.search.trials import EXTENSION, best, finished_trials

from search.synthetic import (
    COEFFICIENT,
    SHARES,
    WARMTH,
    Coefficient,
    Distance,
    file_in,
    goal,
    is_dynamic,
    outcome,
    study,
)


@pytest.mark.nightly
def test_the_known_optimum_of_static_schedules_is_found():
    own = study()
    search(own, goal(), Distance(), trials=80)
    found = winner(own, goal())
    by_hand = min(each.figures.loss for each in finished_trials(own) if each.seed and each.figures)
    assert found.figures.loss < by_hand / 10
    shares, warmth = genes(goal(), found.extension)
    assert shares == pytest.approx(SHARES, abs=0.15)
    assert warmth == pytest.approx(WARMTH, abs=0.15)


def test_the_known_optimum_of_a_space_with_knobs_is_found():
    own = study(takes=is_dynamic)
    search(own, goal(), Coefficient(), trials=40)
    assert winner(own, goal()).values["coefficient"] == pytest.approx(COEFFICIENT, abs=0.02)


@pytest.mark.parametrize("limit", [0.12, 0.2])
def test_whatever_is_returned_keeps_to_the_conditions(limit):
    wanted = goal(max_damage=limit)
    own = study(wanted)
    search(own, wanted, Distance(), trials=40)
    found = winner(own, wanted)
    assert found.figures.damage <= limit + 1e-5
    whole = [each for each in finished_trials(own) if each.figures]
    assert any(each.figures.damage > limit + 1e-5 for each in whole)  # the condition is one
    allowed = [each for each in whole if each.figures.damage <= limit + 1e-5]
    assert found.figures.loss == min(each.figures.loss for each in allowed)


def test_what_cannot_be_reached_is_said_with_how_far_it_is():
    wanted = goal(max_slowdown=0.5, max_damage=1.0)
    own = study(wanted)
    search(own, wanted, Distance(), trials=12)
    with pytest.raises(DoesNotFit, match=r"max_slowdown must be reachable, got '0.5'; of \d+ .* the nearest has 1;"):
        winner(own, wanted)


def test_a_harm_that_is_not_known_is_none_that_is_allowed():
    """The loss on short texts may be NaN under some extension; the study goes on, and does not choose it."""

    class Breaking(Distance):
        def damage(self, extension):
            return math.nan if met.setdefault(extension, len(met) % 2 == 1) else 0.0  # of every other extension

    met = {}
    wanted = goal(max_damage=0.1)
    own = study(wanted)
    search(own, wanted, Breaking(), trials=12)
    search(own, wanted, Breaking(), trials=16)
    found = finished_trials(own)
    assert len(found) == 16
    assert {met[each.extension] for each in found} == {True, False}
    for each in found:
        assert all(math.isinf(loss) for loss in each.rungs.values()) == met[each.extension]
        assert not (each.keeps and met[each.extension])


def test_the_least_of_a_condition_is_named():
    wanted = goal(min_retrieval=0.9)
    own = study(wanted)
    search(own, wanted, Distance(), trials=10)
    with pytest.raises(DoesNotFit, match=r"min_retrieval must be reachable, got '0.9'.*nearest has 0;"):
        winner(own, wanted)


def test_no_time_for_one_is_said():
    own = study()
    search(own, goal(), Distance(stop_at=1, how=OutOfTime))
    with pytest.raises(DoesNotFit, match="budget must be enough to measure one extension"):
        winner(own, goal())


@pytest.mark.parametrize("stop_at", [2, 9, 17, 23])
@pytest.mark.parametrize("how", [KeyboardInterrupt, OutOfTime])
def test_stopped_and_gone_on_is_uninterrupted(stop_at, how):
    whole, shared = study(), InMemoryStorage()
    search(whole, goal(), Distance(), trials=18)
    first = study(storage=shared)
    stopped = search(first, goal(), Distance(stop_at=stop_at, how=how), trials=18)
    assert stopped == (how is KeyboardInterrupt)
    assert len(finished_trials(first)) < 18
    again = study(storage=shared)
    search(again, goal(), Distance(), trials=18)
    assert outcome(again) == outcome(whole)
    assert winner(again, goal()).extension == winner(whole, goal()).extension


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(("after", "in_a_file"), [(3, False), (13, True)])
def test_killed_and_gone_on_is_uninterrupted(tmp_path, after, in_a_file):
    """Nothing outlives the process but what was written."""
    whole, memory = study(), InMemoryStorage()
    search(whole, goal(), Distance(), trials=16)

    def reopened():
        return study(storage=file_in(tmp_path) if in_a_file else memory)

    killed = reopened()
    search(killed, goal(), Distance(), trials=after)
    trial, space, values = next_trial(killed, goal())
    trial.set_user_attr(EXTENSION, space.extension(goal(), values).to_json())
    trial.report(0.0, 0)  # a loss that would press all others out, had it counted
    trial.set_user_attr(OWNER, f"{trial.user_attrs[OWNER].rpartition(':')[0]}:{_dead()}")
    search(reopened(), goal(), Distance(), trials=16)
    assert outcome(reopened()) == outcome(whole)


def _dead():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_what_others_are_at_is_left_to_them():
    own = study()
    for owner in ("elsewhere:1", "this-is-no-owner"):
        next_trial(own, goal())[0].set_user_attr(OWNER, owner)
    release_the_dead(own)
    assert Counter(each.state for each in own.get_trials())[TrialState.RUNNING] == 2


@pytest.mark.nightly
def test_two_workers_never_repeat_a_trial(tmp_path):
    """Each has opened the study for itself; both begin at the same seed, and at the same turn."""
    studies = [study(storage=file_in(tmp_path)) for _ in range(2)]
    workers = [Thread(target=search, args=(each, goal(), Distance()), kwargs={"trials": 14}) for each in studies]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    found = finished_trials(study(storage=file_in(tmp_path)))
    assert len(found) >= 14
    assert len({each.extension for each in found}) == len(found)


def test_of_two_alike_the_later_gives_way():
    own = study()
    search(own, goal(), Distance(), trials=1)
    own.enqueue_trial(own.get_trials()[0].params)
    objective = Distance()
    run_trial(own, goal(), objective)
    assert objective.calls == []
    assert own.get_trials()[1].state == TrialState.FAIL
    assert len(finished_trials(own)) == 1


def test_what_a_model_refuses_is_not_asked_again():
    class Refusing(Distance):
        def rungs(self, extension):
            self.calls.append(extension)
            if len(self.calls) % 2:
                raise DoesNotFit("this", "another", "one")
            yield self.loss(extension)

    own, objective = study(), Refusing()
    search(own, goal(), objective, trials=15)
    assert len(objective.calls) == len(set(objective.calls))
    assert len(finished_trials(own)) == 15


def test_a_study_of_another_model_is_refused(tmp_path):
    study(storage=file_in(tmp_path))
    with pytest.raises(DoesNotFit, match=r"study fit must be of the same model.*weights a \(now b\)"):
        study(storage=file_in(tmp_path), marks={"weights": "b"})
    with pytest.raises(DoesNotFit, match=r"max_damage None \(now 0.1\)"):
        study(goal(max_damage=0.1), storage=file_in(tmp_path))
    assert study(storage=file_in(tmp_path), name="other", marks={"weights": "b"})


def test_a_storage_that_is_none():
    with pytest.raises(Unreadable, match="storage must be a study that Optuna opens, as fit wrote it, got 'nonsense'"):
        study(storage="nonsense")


def test_who_falls_behind():
    rivals = [1.0, 1.1, 1.2, 1.3, 1.4]
    assert not falls_behind(1.05, rivals, by_hand=False)  # second of six: among the best third
    assert falls_behind(1.15, rivals, by_hand=False)
    assert not falls_behind(5.0, [], by_hand=False)  # nobody to compare with
    assert not falls_behind(1.0 + 0.9 * MAX_GAP, rivals, by_hand=True)
    assert falls_behind(1.0 + 1.1 * MAX_GAP, rivals, by_hand=True)
    assert falls_behind(float("nan"), [], by_hand=True)
    for rest in (rivals, rivals[::-1]):  # rivals without a number protect nobody, wherever they stand
        assert falls_behind(1.0 + 1.1 * MAX_GAP, [float("nan"), *rest, float("inf")], by_hand=True)
        assert falls_behind(1.15, [float("nan"), *rest], by_hand=False)


def test_the_best_keeps_to_the_goal_and_was_measured_wholly():
    own = study()
    search(own, goal(), Distance(), trials=12)
    found = finished_trials(own)
    assert best([each for each in found if not each.figures]) is None
    assert best([each._replace(violations={"max_damage": 0.1}) for each in found]) is None
    assert best(found).figures.loss == min(each.figures.loss for each in found if each.figures)
