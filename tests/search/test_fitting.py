"""From a model and its texts to an answer with its evidence."""

import math
import multiprocessing
import shutil
from copy import deepcopy
from dataclasses import replace
from statistics import mean
from types import SimpleNamespace

import pytest
import torch
from optuna.trial import TrialState

import ropewalk as rw
from ropewalk.extension.notation import BARE
from ropewalk.measure.comparison import runner
from ropewalk.measure.comparison.runner import FAILED
from ropewalk.measure.metrics.intervals import Estimate, difference
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.search import fitting as searching, studies as halving
from ropewalk.search.final_test import final_test, lines, name_of, reserve
from ropewalk.search.fitting import Fitting
from ropewalk.search.fitting_words import words
from ropewalk.search.goal import Goal
from ropewalk.search.objective import OnTexts
from ropewalk.search.proposals import spaces_of
from ropewalk.search.report import as_json
from ropewalk.search.spaces import Pairs
from ropewalk.search.trials import MeasuredTrial, finished_trials

from measure.subjects import TRAINED, model, subject
from nightly import first_of_each
from train.texts import folder_of

TARGET = 128


def fitting(path, **given):
    who = subject(path, longest=TARGET, count=300)
    wanted = Goal(facts=who.facts, target_len=TARGET, **{"samples": 2, "judges": 3, "deployable": "static", **given})
    return Fitting(who, wanted, path / "out")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    own = fitting(tmp_path_factory.mktemp("fit"))
    seen = []
    assert not own.search(trials=15, watch=seen.append)
    assert len(seen) == 15
    return own, own.judge()


def loss_by_hand(model, extension, ids):
    with rw.extended(model, extension):
        return token_losses(model, ids[None]).loss(TARGET // 2)


@pytest.mark.nightly
def test_the_texts_that_judge_were_never_fitted_on(made):
    own, _ = made
    fitted, judged = own.fitted_on.subject.passages(2), own.judged_on.subject.passages(3)
    every = own.subject.passages(6)
    assert all(torch.equal(*pair) for pair in zip(every[0::2], fitted, strict=False))
    assert all(torch.equal(*pair) for pair in zip(every[1::2], judged, strict=True))
    assert own.fitted_on.subject.marks != own.judged_on.subject.marks


@pytest.mark.nightly
def test_the_numbers_are_those_of_the_texts(made):
    own, found = made
    model, answer = own.subject.model, found.chosen.extension
    seen, held_back = own.fitted_on.subject.passages(2), own.judged_on.subject.passages(3)
    assert found.chosen.figures.loss == pytest.approx(
        mean(loss_by_hand(model, answer, each) for each in seen), abs=1e-4
    )
    losses = [loss_by_hand(model, answer, each) for each in held_back]
    assert found.answer.loss.value == pytest.approx(mean(losses), abs=1e-4)
    yarn = next(each for each in found.beside if each.line == "yarn")
    theirs = [loss_by_hand(model, yarn.extension, each) for each in held_back]
    assert yarn.behind.value == pytest.approx(difference(theirs, losses).value, abs=1e-4)
    bare = [token_losses(model, ids[None, -TRAINED:]).loss(TRAINED // 2) for ids in held_back]
    with rw.extended(model, answer):
        short = [token_losses(model, ids[None, -TRAINED:]).loss(TRAINED // 2) for ids in held_back]
    assert found.answer.damage.value == pytest.approx(difference(short, bare).value, abs=1e-4)


def test_it_ends_no_worse_than_what_was_set_by_hand(made):
    _, found = made
    by_hand = [each.figures.loss for each in found.history if each.seed and each.figures]
    assert len(by_hand) > 1
    assert found.chosen.figures.loss <= min(by_hand)


def test_it_is_judged_beside_everything_of_its_class(made):
    own, found = made
    named = [each.line for each in found.beside]
    assert named[0] == BARE
    assert {"yarn", "pi", "abf"} <= set(named)
    assert not {"rerope", "dynamic_yarn"} & set(named)
    assert len(lines(own.goal, own.takes, found.history, 3)) == 3
    assert found.rival.loss.value == min(each.loss.value for each in found.beside if each.line != BARE)


@pytest.mark.nightly
def test_the_answer_is_tested_on_other_text(tmp_path):
    """The answer, the base model and the rival, on as many texts as there are; the search does not see them."""
    own = fitting(tmp_path)
    own.other = subject(tmp_path / "other", longest=TARGET, count=60, words=150, first=9000)
    assert own.other.count(3) == 3
    own.search(trials=4)
    found = own.judge()
    corpus, answer, (bare, rival) = found.elsewhere
    assert corpus == own.other.corpus
    assert (bare.line, rival.line) == (BARE, found.rival.line)
    texts = own.other.passages(3)
    losses = [loss_by_hand(own.subject.model, answer.extension, ids) for ids in texts]
    theirs = [loss_by_hand(own.subject.model, rival.extension, ids) for ids in texts]
    assert answer.loss.value == pytest.approx(mean(losses), abs=1e-4)
    assert rival.behind.value == pytest.approx(difference(theirs, losses).value, abs=1e-4)
    assert f"On 3 texts of {corpus}, of which the search saw none, the search's choice has " in words(found)
    assert as_json(found)["elsewhere"]["judged"][0]["loss"]["value"] == answer.loss.value
    itself = found.elsewhere._replace(beside=(bare, replace(rival, extension=answer.extension)))
    said = words(replace(found, elsewhere=itself))
    assert f"the search's choice has a loss of {answer.loss.value:.3f} nats." in said
    twin = replace(rival, extension=rw.Extension(), behind=Estimate(0.0, 0.0, 0.0, 3))
    alike = found.elsewhere._replace(beside=(bare, twin))
    assert f"the search's choice has the same loss as {rival.line}." in words(replace(found, elsewhere=alike))


@pytest.mark.nightly
@pytest.mark.parametrize("shared", ["the whole corpus", "some files"])
def test_other_text_has_nothing_that_the_search_saw(tmp_path, shared):
    """Whatever the two corpora have in common, under whatever names."""
    folder_of(tmp_path / "texts", count=900)
    own = fitting(tmp_path)
    corpus = own.subject.corpus
    if shared == "some files":
        place = tmp_path / "other" / "texts"
        corpus = f"all:{folder_of(place, count=60, words=150, first=9000)}"
        for number, path in enumerate(sorted((tmp_path / "texts").glob("*.txt"))):
            shutil.copy(path, place / f"copy{number}.txt")
    own.other = replace(own.subject, corpus=corpus, _passages=[])
    own.search(trials=4)
    found = own.judge()
    seen = {tuple(ids.tolist()) for ids in own.fitted_on.subject.passages(2) + own.judged_on.subject.passages(3)}
    everything = {tuple(ids.tolist()) for ids in own.other.passages(own.other.count(300))}
    assert seen & everything  # else this tests nothing
    tested = [tuple(ids.tolist()) for ids in own.elsewhere.passages(3)]
    assert not seen & set(tested)
    assert found.elsewhere.answer.loss.value == pytest.approx(
        mean(loss_by_hand(own.subject.model, found.chosen.extension, torch.tensor(ids)) for ids in tested), abs=1e-4
    )
    assert "of which the search saw none" in words(found)


@pytest.mark.nightly
def test_too_little_other_text_is_left_out(tmp_path):
    own = fitting(tmp_path)
    own.other = subject(tmp_path / "other", longest=TARGET, count=40, words=150, first=9000)
    assert 0 < own.other.count(3) < 3
    own.search(trials=4)
    found = own.judge()
    assert found.elsewhere is None
    assert f"It was not judged on {own.other.corpus}, which has too few texts of the longest length" in words(found)
    own.other = None
    assert "not judged on" not in words(own.judge())  # it was not asked for


def test_other_text_without_far_tokens_is_left_out(tmp_path, made):
    """It must not fail at the end of a long search."""
    own = fitting(tmp_path, objective="far")
    own.other = subject(tmp_path / "other", longest=TARGET, count=60, words=150, first=9000)
    assert not OnTexts(own.other, own.goal, own.judged_on.store, 3).scored_tokens(3)  # random weights find none
    assert own._elsewhere(made[1]) is None


def test_who_got_further_comes_first_and_then_who_lost_less_there(made):
    own, _ = made
    rungs = {"yarn": {0: 9.0, 1: 2.0}, "pi": {0: 1.0, 1: 3.0}, "abf": {0: 0.5}}
    every = lines(own.goal, own.takes, ())
    past = [MeasuredTrial(0, "hand_set", {}, every[line], own, None, {}, seed=True) for line, own in rungs.items()]
    assert list(lines(own.goal, own.takes, past))[:3] == ["yarn", "pi", "abf"]
    assert list(lines(own.goal, own.takes, past))[3:] == [line for line in every if line not in rungs]


@pytest.mark.nightly
def test_what_broke_is_judged_on_a_few_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(halving, "MAX_GAP", 0.0)
    own = fitting(tmp_path, judges=8)
    own.search(trials=16)
    found = {each.line: each for each in own.judge().beside}
    dropped = {each.extension for each in finished_trials(own.study) if not each.figures}
    assert {each.loss.of for each in found.values() if each.extension in dropped} == {6}
    assert {each.loss.of for each in found.values() if each.extension not in dropped} == {8}
    assert all(each.behind.of == each.loss.of == each.damage.of for each in found.values())


@pytest.mark.parametrize(("without", "few"), [(0, 6), (5, 6), (6, 7), (30, 8)])
def test_of_few_texts_one_has_a_token_that_counts(tmp_path, monkeypatch, without, few):
    """Where only tokens count that need far context, the first texts may have none."""
    monkeypatch.setattr(OnTexts, "scored_tokens", lambda self, count: max(0, count - without))
    assert fitting(tmp_path, judges=8, objective="far")._few == few


def test_other_text_that_cannot_be_read_is_refused_before_anything_is_measured(tmp_path):
    own = fitting(tmp_path)
    own.other = replace(own.subject, corpus="all:/nowhere.jsonl", _passages=[])
    with pytest.raises(rw.RopewalkError, match=r"judge_on: .*/nowhere\.jsonl"):
        own.begin()
    assert not finished_trials(own.study)
    assert not (own.folder / "cells.sqlite").exists()


@pytest.mark.nightly
def test_a_helper_measures_what_the_judge_then_finds(made, tmp_path, monkeypatch):
    own = fitting(tmp_path)
    own.search(trials=4)
    own.judge_share(0)
    measured_now = []
    monkeypatch.setattr(OnTexts, "rows", lambda self, extension, count=None: measured_now.append(extension))
    monkeypatch.setattr(OnTexts, "short_losses", lambda self, extension: None)
    own.workers = 2
    own.judge_share(0)
    own.judge_share(1)
    assert set(measured_now) == set(lines(own.goal, own.takes, ()).values())
    assert len(measured_now) == len(set(measured_now))


@pytest.mark.nightly
def test_time_that_is_out_ends_the_search_when_there_is_an_answer(tmp_path):
    own = fitting(tmp_path)
    own.deadline = 0.0
    seen = []
    assert own.search(watch=seen.append) is False
    assert [each.values for each in seen] == [{"line": "yarn"}]
    found = own.judge()
    assert found.answer.line == "yarn"
    assert found.untried == len(lines(own.goal, own.takes, ())) - 1


def test_a_search_with_time_enough_leaves_nothing_untried(made):
    assert made[1].untried == 0


def test_the_search_ends_before_the_deadline_by_what_judging_takes(tmp_path):
    assert fitting(tmp_path).end is None
    later = fitting(tmp_path)
    later.deadline = 1000.0
    assert later.end < 1000 - 8 * later.fitted_on.long(rw.Extension()).seconds / torch.get_num_threads()


def test_a_worker_whose_parent_is_gone_stops(tmp_path, monkeypatch):
    own = fitting(tmp_path)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(is_alive=lambda: False))
    assert own.search() is True
    assert own.study.get_trials()[0].state == TrialState.FAIL


def test_time_for_judging_is_kept():
    wanted = Goal(facts=rw.Facts(trained_len=32, head_dim=8), target_len=256, samples=4, judges=8)
    # By hand: 10 s for 4 texts are 20 s for 8, and an eighth more for as many short ones; the bare model once, and the
    # answer, what it is compared with and 8 others at 1.3 times that.
    assert reserve(wanted, 10.0, 8, 1) == pytest.approx(22.5 * (1 + 1.3 * 10))
    assert reserve(wanted, 10.0, 8, 4) == pytest.approx(22.5 * (1 + 1.3 * 4))
    assert reserve(wanted, 10.0, 8, 2) < reserve(wanted, 10.0, 8, 1)
    assert reserve(wanted, 20.0, 8, 1) == pytest.approx(2 * reserve(wanted, 10.0, 8, 1))


def test_the_time_for_judging_is_that_of_the_slowest_extension_that_was_met(tmp_path):
    own = fitting(tmp_path, samples=4, judges=8)
    own.deadline = 1000.0
    before = own.end
    own.search(trials=3)
    times = [trial.figures.slowdown for trial in finished_trials(own.study) if trial.figures]
    shares = sum(count / 8 for _, count in own._to_judge().values())
    assert own.end == pytest.approx(1000 - reserve(own.goal, own.bare_seconds, shares, 1, max(times)))
    assert own.end != before


def test_one_thread_does_not_idle(tmp_path, monkeypatch):
    seconds = {}
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        own = fitting(tmp_path)
        seconds[threads] = own.bare_seconds / sum(row.seconds for row in own.fitted_on.rows(rw.Extension()))
    assert seconds == pytest.approx({1: 1, 2: 1.3 / 2})


@pytest.mark.nightly
@pytest.mark.parametrize("lengths", first_of_each([(), (64,)]))
def test_schedules_alone(tmp_path, lengths):
    """Neither proposals nor rivals have a reach, a bias, or layers of their own."""
    own = fitting(tmp_path, space="schedules", lengths=lengths, deployable="any")
    names = list(spaces_of(own.goal))
    assert not {"reaches", "windows_below"} & set(names)
    assert ("dynamic_pairs" in names) == bool(lengths)
    own.search(trials=40)
    tested = [trial.extension for trial in finished_trials(own.study)] + [
        extension for extension, _ in own._to_judge().values()
    ]
    assert {type(each.frequencies).__name__ for each in tested} >= {"ByParts", "Dynamic", "NTK"}
    assert all(each.reach is None and not each.biases and not each.layers for each in tested)
    assert {"parts", "pairs"} & {trial.space for trial in finished_trials(own.study)}
    assert fitting(tmp_path / "usual", deployable="any").takes(rw.parse("rerope:window=16"))


def test_too_few_texts_are_refused_before_anything_is_measured(tmp_path):
    own = fitting(tmp_path, samples=500)
    with pytest.raises(rw.DoesNotFit, match="500 held-out documents"):
        own.begin()


def test_pass_keys_are_counted_where_they_are_asked_for(tmp_path):
    who = subject(tmp_path, longest=200)
    wanted = Goal(facts=who.facts, target_len=200, samples=2, judges=2, min_retrieval=0.5)
    figures = Fitting(who, wanted, tmp_path / "out").fitted_on.figures(rw.parse("yarn:factor=8"))
    assert figures.retrieval == 0.0
    assert wanted.violations(figures)["min_retrieval"] == 0.5


@pytest.mark.nightly
def test_a_search_with_a_limit_of_time_goes_on_only_on_the_same_kind_of_device(tmp_path, monkeypatch):
    for name, limits in {"timed": {"max_slowdown": 2.0}, "free": {}}.items():
        fitting(tmp_path / name, **limits).search(trials=1)
    monkeypatch.setattr(searching, "device_name", lambda subject: "a GPU")
    with pytest.raises(rw.DoesNotFit, match=r"device cpu \(now a GPU\)"):
        _ = fitting(tmp_path / "timed", max_slowdown=2.0).study
    assert len(finished_trials(fitting(tmp_path / "free").study)) == 1


def test_seconds_of_two_kinds_of_devices_make_no_ratio(tmp_path, monkeypatch):
    """Where a search without a limit of time goes on elsewhere, its trials and its final test say so."""
    own = fitting(tmp_path)
    own.fitted_on.long(rw.Extension())
    monkeypatch.setattr(runner, "device_name", lambda subject: "a GPU")
    assert math.isnan(own.fitted_on.figures(rw.parse("yarn:factor=8")).slowdown)
    tested = final_test(own.fitted_on, "yarn", rw.parse("yarn:factor=8"), rw.Extension())
    assert math.isnan(tested.slowdown)


@pytest.mark.nightly
def test_a_search_goes_on_only_with_the_code_that_began_it(tmp_path, monkeypatch):
    """Losses of a changed method are other numbers, and cannot be ranked among the old ones."""
    fitting(tmp_path).search(trials=2)
    assert len(finished_trials(fitting(tmp_path).study)) == 2
    monkeypatch.setattr(searching, "code_marks", lambda: {"sources": "changed"})
    with pytest.raises(rw.DoesNotFit, match=r"must be of the same model, text, goal and code.*sources .*now changed"):
        _ = fitting(tmp_path).study


def test_names(made):
    _, found = made
    assert name_of(found.chosen._replace(space="hand_set", values={"line": "yarn"})) == "yarn"
    assert name_of(found.chosen._replace(space="pairs", number=7)) == "pairs #7"


def test_time_is_the_processors_own(tmp_path, monkeypatch):
    """What others do meanwhile, which a clock on the wall would show, counts for nothing."""
    own = fitting(tmp_path)
    work = iter([10.0, 13.0, 20.0, 24.0])
    monkeypatch.setattr(runner, "time", SimpleNamespace(process_time=lambda: next(work)))
    assert own.fitted_on.long(rw.parse("yarn:factor=4")).seconds == 3 + 4


def test_memory_that_does_not_suffice_is_a_refusal(tmp_path, monkeypatch):
    own = fitting(tmp_path)
    monkeypatch.setattr(runner, "result_of", lambda *_: {FAILED: "out of memory"})
    with pytest.raises(rw.DoesNotFit, match="memory must be enough for texts of 128 tokens, got 'out of memory'"):
        own.fitted_on.long(rw.parse("yarn:factor=4"))


def test_slopes_are_those_of_the_loss_by_each_gene(tmp_path):
    """Against the loss of the first text where a gene is a little more, and a little less."""
    who = subject(tmp_path, longest=TARGET, count=300, model_=deepcopy(model()).double())
    wanted, step = Goal(facts=who.facts, target_len=TARGET, samples=2, judges=3), 1e-3
    on = Fitting(who, wanted, tmp_path / "out").fitted_on
    begin = {f"share_{pair:03}": 0.1 * pair for pair in range(8)} | {"temperature": 1.2}

    def loss(name, by):
        """Of a changed gene; that of the temperature is its logarithm."""
        value = begin[name] * math.exp(by) if name == "temperature" else begin[name] + by
        return loss_by_hand(who.model, Pairs().extension(wanted, {**begin, name: value}), on.subject.passages(1)[0])

    slopes = on.slopes(Pairs().extension(wanted, begin))
    assert slopes.shape == (2, 9)
    for gene, name in ((2, "share_002"), (5, "share_005"), (8, "temperature")):
        expected = (loss(name, step) - loss(name, -step)) / (2 * step)
        assert float(slopes[0, gene]) == pytest.approx(expected, rel=0.02, abs=1e-5)
        assert abs(expected) > 1e-4
