"""A search over several lengths: what is minimised, what is tried, and what the final test says of each length."""

from random import Random
from statistics import mean

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.measure.comparison.runner import ResultRow
from ropewalk.measure.metrics.intervals import difference
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.measure.tasks import Context
from ropewalk.search.fitting import Fitting
from ropewalk.search.fitting_words import words
from ropewalk.search.goal import Goal, Measurements
from ropewalk.search.objective import mean_loss, text_losses
from ropewalk.search.proposals import seeds, spaces_of
from ropewalk.search.report import as_json, table
from ropewalk.search.spaces import DynamicPairs, HandSet
from ropewalk.search.trials import MeasuredTrial

from measure.subjects import subject
from search.synthetic import FACTS, everything, goal

LENGTHS = (32, 64, 128)


@pytest.fixture(scope="module")
def fitting(tmp_path_factory):
    path = tmp_path_factory.mktemp("lengths")
    who = subject(path, longest=128, count=300)
    wanted = Goal(facts=who.facts, target_len=128, samples=2, judges=3, lengths=LENGTHS[:2])
    return Fitting(who, wanted, path / "out")


def losses_by_hand(model, line, texts):
    """At each length the loss of the last half, text by text."""
    with rw.extended(model, line):
        return [[token_losses(model, ids[None, -n:]).loss(n // 2) for ids in texts] for n in LENGTHS]


def test_the_mean_over_the_lengths_is_minimised(fitting):
    texts, line = fitting.fitted_on, rw.parse("yarn:factor=4")
    by_length = losses_by_hand(fitting.subject.model, line, texts.subject.passages(2))
    assert texts.loss(line).value == pytest.approx(mean(map(mean, by_length)), abs=1e-5)
    assert list(texts.rungs(line))[-1] == texts.figures(line).loss == texts.loss(line).value
    assert text_losses(texts.rows(line)) == pytest.approx(
        [mean(column) for column in zip(*by_length, strict=True)], abs=1e-5
    )


def test_the_mean_of_losses_ends_at_none():
    """Of two texts that differ much: Student's interval would go on below 0, where no loss is."""
    losses, lengths = {32: (0.2, 4.0), 64: (0.4, 5.0)}, (32, 64)
    rows = [
        ResultRow(rw.parse("rope"), Context(samples=2), n, {}, tuple({"loss": one} for one in losses[n]), 1.0)
        for n in lengths
    ]
    together = mean_loss(rows)
    assert together.value == pytest.approx(2.4)
    assert together.low == 0
    assert together.high > 4.5


def test_slopes_are_the_mean_over_the_lengths(fitting):
    texts, line = fitting.fitted_on, rw.parse("yarn:factor=4")
    parts = [texts._slopes_at(line, length) for length in LENGTHS]
    assert torch.allclose(texts.slopes(line), sum(parts) / 3)
    assert not torch.allclose(parts[0], parts[2])


@pytest.mark.nightly
def test_the_final_test_has_every_length(fitting):
    fitting.search(trials=3)
    found = fitting.judge()
    texts, model = fitting.judged_on.subject.passages(3), fitting.subject.model
    yarn = next(tested for tested in found.beside if tested.line == "yarn:factor=2")
    mine, theirs = (losses_by_hand(model, one.extension, texts) for one in (yarn, found.answer))
    assert [at.length for at in yarn.by_length] == list(LENGTHS)
    for at, a, b in zip(yarn.by_length, mine, theirs, strict=True):
        assert at.loss.value == pytest.approx(mean(a), abs=1e-5)
        assert at.behind.value == pytest.approx(difference(a, b).value, abs=1e-5)
    assert yarn.behind.value == pytest.approx(mean(at.behind.value for at in yarn.by_length), abs=1e-5)
    assert table(found).head[4:7] == ("loss at 32", "loss at 64", "loss at 128")
    assert "the last halves of texts of 32, 64 and 128 tokens, each length alike, have a loss" in words(found)
    judged = as_json(found)["judged"][0]["by_length"]
    assert [at["length"] for at in judged] == list(LENGTHS)


def test_schedules_for_every_length_are_tried():
    wanted = goal(lengths=(32, 64, 128))
    lines = [values["line"] for values in HandSet().seeds(wanted)]
    assert {"yarn:factor=2", "yarn:factor=4", "ntk:factor=2", "ntk:factor=4", "ntk:factor=24"} <= set(lines)
    assert "yarn:factor=1" not in lines
    assert len(lines) == len(set(lines))
    assert "yarn:factor=1" not in [values["line"] for values in HandSet().seeds(Goal(facts=FACTS, target_len=64))]


def test_dynamic_tables_are_searched_for_several_lengths_alone():
    assert DynamicPairs.name in spaces_of(goal(lengths=(64,)))
    assert DynamicPairs.name not in spaces_of(goal())
    names = [space.name for space, _ in seeds(goal(lengths=(64,)), everything).values()]
    assert names.count(DynamicPairs.name) == 1


def test_a_dynamic_table_is_yarns_where_nothing_was_searched():
    """At the target it is YaRN's, and within the trained length the base model's."""
    space, wanted = DynamicPairs(), goal(lengths=(64,))
    extension = space.extension(wanted, space.example(wanted))
    yarn = rw.parse("yarn:factor=8", trained_len=32)
    for length, expected in ((256, yarn), (32, rw.Extension())):
        table = extension.frequencies_or_rope.table(FACTS, length).inv_freq
        assert table.tolist() == pytest.approx(
            expected.frequencies_or_rope.table(FACTS, length).inv_freq.tolist(), rel=1e-3
        )


def test_children_are_of_the_best_of_either_kind():
    space, wanted = DynamicPairs(), goal(lengths=(64,))
    first = space.proposed(wanted, [], Random(0))
    assert set(first) == set(space.knobs(wanted))
    space.extension(wanted, first).check_against(FACTS)
    best = {**space.example(wanted), "coefficient": 0.25}
    past = [
        MeasuredTrial(n, space.name, best, space.extension(wanted, best), {0: 1.0}, figures(1.0), {}, seed=False)
        for n in range(3)
    ]
    near = [space.proposed(wanted, past, Random(seed))["coefficient"] for seed in range(20)]
    assert mean(near) == pytest.approx(0.25, abs=0.02)
    shares = [value for name, value in first.items() if name != "coefficient"]
    assert shares == sorted(shares)


def figures(loss):
    return Measurements(loss, damage=0.0, slowdown=1.0)


@pytest.mark.parametrize("length", [16, 256, 300])
def test_lengths_are_below_the_target(length):
    rule = r"lengths must be from the trained length \(32\) to below the target \(256\)"
    with pytest.raises(DoesNotFit, match=rule):
        goal(lengths=(64, length))


def test_several_lengths_have_no_far_tokens():
    with pytest.raises(Conflict, match="lengths must be left out where the objective is far"):
        goal(lengths=(64,), objective="far")


def test_a_goal_of_one_length_is_written_as_before():
    assert "lengths" not in goal().to_json()
    assert goal(lengths=(64,)).to_json()["lengths"] == (64,)
