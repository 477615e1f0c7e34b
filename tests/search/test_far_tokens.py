"""The objective of tokens that need far context: fixed by the base model, and the loss of no others."""

from dataclasses import replace

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit
from ropewalk.hf.use.frequency_gradients import slopes
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.metrics.intervals import difference
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.measure.metrics.perplexity import key_tokens
from ropewalk.search import far_tokens as choosing
from ropewalk.search.far_tokens import FarLoss
from ropewalk.search.fitting import Fitting
from ropewalk.search.goal import Goal

from measure.subjects import TRAINED, subject

TARGET, LAST = 128, 64
YARN = rw.parse("yarn:factor=4")


def loosely(model, text, trained_len, begin=()):
    """The tiny model predicts nothing well: the same rule with lower thresholds."""
    return key_tokens(model, text, near=trained_len // 8, far=trained_len, gain=0.02, most=9.0, begin=begin)


@pytest.fixture
def far(tmp_path, monkeypatch):
    """A search on four texts, of which the tokens by a rule that this model fulfils are counted."""
    monkeypatch.setattr(choosing, "far_tokens", loosely)
    who = subject(tmp_path, longest=TARGET, count=300)
    goal = Goal(facts=who.facts, target_len=TARGET, samples=4, judges=3, deployable="static", objective="far")
    return Fitting(who, goal, tmp_path / "out")


def by_hand(model, text):
    """Where the tokens are, among the last ones, by the base model."""
    return loosely(model, text[-(LAST + TRAINED) :], TRAINED)[-LAST:]


def test_the_base_model_chooses_whatever_is_measured(far):
    texts, model = far.fitted_on, far.subject.model
    expected = [by_hand(model, text) for text in texts.subject.passages(4)]
    with rw.extended(model, YARN):
        other = [by_hand(model, text) for text in texts.subject.passages(4)]
    assert any(not torch.equal(*both) for both in zip(expected, other, strict=True))
    texts.long(YARN)
    assert texts.far_places() == tuple(tuple(flags.nonzero().flatten().tolist()) for flags in expected)
    assert 20 < sum(map(len, texts.far_places())) < 4 * LAST - 20


def test_the_loss_is_that_of_the_tokens_chosen_and_no_others(far):
    texts, model = far.fitted_on, far.subject.model
    flags = [by_hand(model, text) for text in texts.subject.passages(4)]
    with rw.extended(model, YARN):
        losses = [token_losses(model, text[None]).losses_bn[0, -LAST:] for text in texts.subject.passages(4)]
    counted = torch.cat([of_text[chosen] for of_text, chosen in zip(losses, flags, strict=True)])
    assert texts.long(YARN).numbers["loss"].value == pytest.approx(float(counted.mean()), rel=1e-4)
    assert texts.figures(YARN).loss == texts.long(YARN).numbers["loss"].value
    assert abs(float(counted.mean()) - float(torch.stack(losses).mean())) > 1e-3


@pytest.mark.nightly
def test_a_search_minimises_it_and_the_test_reports_it(far):
    far.begin()
    far.search(trials=9)
    result = far.judge()
    judged = far.judged_on
    assert result.chosen.figures.loss == far.fitted_on.long(result.chosen.extension).numbers["loss"].value
    assert result.answer.loss == judged.long(result.answer.extension).numbers["loss"]
    rows = [judged.long(extension).samples for extension in (result.rival.extension, result.answer.extension)]
    tokens = [sample["tokens"] for sample in rows[0]]
    assert len(set(tokens)) > 1
    weighted = difference(*[[sample["loss"] for sample in row] for row in rows], weights=tokens)
    assert result.rival.behind == weighted
    assert weighted.value == pytest.approx(result.rival.loss.value - result.answer.loss.value)
    assert "tokens that need far context" in far.goal.scored


def test_gradients_are_of_the_same_mean(far):
    texts, model = far.fitted_on, far.subject.model
    got = texts.slopes(rw.Extension()).mean(0)
    places, total = texts.far_places(), sum(map(len, texts.far_places()))
    by_text = [
        slopes(model, text[None], last=LAST, places=chosen).by_pair * len(chosen) / total
        for text, chosen in zip(texts.subject.passages(4), places, strict=True)
    ]
    expected = -torch.log(torch.tensor(4.0)) * torch.stack(by_text).sum(0)
    torch.testing.assert_close(got[:-1].float(), expected.float(), rtol=1e-3, atol=1e-6)
    whole = [slopes(model, text[None], last=LAST).by_pair for text in texts.subject.passages(4)]
    assert not torch.allclose(-torch.stack(whole).mean(0) * torch.log(torch.tensor(4.0)), expected, rtol=0.1)


def test_gradients_of_some_tokens_and_of_the_others_add_up(far):
    model, text = far.subject.model, far.fitted_on.subject.passages(1)[0][None]
    some = [3, 10, 11, 40]
    others = [place for place in range(LAST) if place not in some]
    one, rest, whole = (slopes(model, text, last=LAST, places=places) for places in (some, others, None))
    torch.testing.assert_close(4 * one.by_pair + 60 * rest.by_pair, 64 * whole.by_pair, rtol=1e-3, atol=1e-5)
    assert 4 * one.by_temperature + 60 * rest.by_temperature == pytest.approx(64 * whole.by_temperature, rel=1e-3)
    assert not torch.allclose(one.by_pair, whole.by_pair, rtol=0.1)
    assert not slopes(model, text, last=LAST, places=[]).by_pair.any()


def test_texts_without_such_tokens_are_left_out_of_means():
    task = FarLoss(samples=3, last=8, places=((1,), (), (2, 3, 4)))
    samples = [{"loss": 1.0, "tokens": 1}, {"loss": 0.0, "tokens": 0}, {"loss": 3.0, "tokens": 3}]
    estimate = task.condense(samples)["loss"]
    assert (estimate.value, estimate.of) == (2.5, 2)
    assert difference([1, 5, 3], [0, 0, 1], weights=[1, 0, 3]).value == pytest.approx((1 + 3 * 2) / 4)


def test_a_sample_is_measured_again_when_its_own_tokens_change():
    one, other = FarLoss(samples=2, last=8, places=((1,), (2,))), FarLoss(samples=2, last=8, places=((1,), (3,)))
    assert one.identity(0) == other.identity(0)
    assert one.identity(1) != other.identity(1)


def test_rungs_without_such_tokens_are_passed_over(far, monkeypatch):
    first = far.fitted_on.subject.passages(1)[0][-LAST - TRAINED :]
    rule = lambda model, text, *more: loosely(model, text, *more) & (not torch.equal(text, first))  # noqa: E731
    assert len(list(far.fitted_on.rungs(YARN))) == 2  # one text, four texts
    monkeypatch.setattr(choosing, "far_tokens", rule)
    again = replace(far.fitted_on, store=Store(far.folder / "other.sqlite"))
    assert list(again.rungs(YARN)) == [again.long(YARN).numbers["loss"].value]
    assert again.long(YARN).numbers["loss"].of == 3


def test_texts_without_any_are_refused(tmp_path):
    """By the true rule: an untrained model predicts nothing with far context."""
    who = subject(tmp_path, longest=TARGET, count=300)
    goal = Goal(facts=who.facts, target_len=TARGET, samples=2, judges=2, objective="far")
    with pytest.raises(DoesNotFit, match="corpus must be texts with tokens that need far context"):
        Fitting(who, goal, tmp_path / "out").begin()
