"""NBCE against the author's own code, and both rules by hand."""

import math

import pytest
import torch
from transformers import TopPLogitsWarper

from ropewalk.errors import InvalidValue
from ropewalk.methods.decoding import NBCE, MaxPooling, MeanPooling
from ropewalk.methods.decoding.nbce import keep_top_p

from golden_tables import golden

TABLE = golden("nbce")


def test_nbce_follows_the_author_step_by_step():
    rule, last = NBCE(beta=TABLE["beta"], eta=TABLE["eta"], top_p=TABLE["top_p"]), None
    for step in TABLE["steps"]:
        logp = torch.tensor(step["logits_in(row0=no-context)"], dtype=torch.float64).log_softmax(-1)
        got = rule.combine(logp, last)
        expected = [-math.inf if value is None else value for value in step["merged_logits"]]
        assert got.chosen == step["k"]
        torch.testing.assert_close(got.logp, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-5)
        assert int(got.logp.argmax()) == step["argmax"]
        last = got.chosen


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.95, 1.0])
def test_filter_equals_transformers(top_p):
    logp = torch.randn(5, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    expected = TopPLogitsWarper(top_p)(None, logp.clone())
    assert torch.equal(keep_top_p(logp, top_p), expected)


def test_eta_keeps_the_context_that_was_chosen():
    sure, surer = [0.70, 0.15, 0.15], [0.72, 0.14, 0.14]
    logp = torch.tensor([[1 / 3] * 3, sure, surer], dtype=torch.float64).log()
    assert NBCE(top_p=1.0).combine(logp).chosen == 2
    assert NBCE(top_p=1.0).combine(logp, last=1).chosen == 1
    assert NBCE(top_p=1.0, eta=0.0).combine(logp, last=1).chosen == 2


def test_mean_pooling_by_hand():
    logp = torch.tensor([[0.5, 0.5], [0.8, 0.2], [0.2, 0.8]], dtype=torch.float64).log()
    mean = (math.log(0.8) + math.log(0.2)) / 2
    got = MeanPooling(beta=0.5).combine(logp)
    assert got.chosen is None
    assert got.logp.tolist() == pytest.approx([1.5 * mean - 0.5 * math.log(0.5)] * 2)


def test_mean_pooling_with_one_less_than_its_contexts_is_naive_bayes():
    """p(T|C1) p(T|C2) / p(T), up to a constant."""
    p = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]], dtype=torch.float64)
    got = MeanPooling(beta=1).combine(p.log()).logp.softmax(-1)
    exact = p[1] * p[2] / p[0]
    torch.testing.assert_close(got, exact / exact.sum())


def test_max_pooling_by_hand():
    logp = torch.tensor([[0.3, 0.2, 0.5], [0.8, 0.1, 0.1], [0.2, 0.5, 0.3]], dtype=torch.float64).log()
    got = MaxPooling(beta=0.5).combine(logp)
    assert got.chosen is None
    expected = [1.5 * math.log(most) - 0.5 * math.log(alone) for most, alone in ((0.8, 0.3), (0.5, 0.2), (0.3, 0.5))]
    assert got.logp.tolist() == pytest.approx(expected)


def test_tokens_that_are_impossible_stay_so():
    logp = torch.tensor([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [0.2, 0.7, 0.1]], dtype=torch.float64).log()
    for rule in (NBCE(), MeanPooling(), MeanPooling(beta=0.0), MaxPooling()):
        assert not rule.combine(logp).logp.isnan().any()
    assert MeanPooling().combine(logp).logp[2] == -math.inf
    assert MaxPooling().combine(logp).logp[2] == pytest.approx(math.log(0.1))  # one context has it


def test_nan_is_refused():
    for rule in (NBCE(), MeanPooling(), MaxPooling()):
        with pytest.raises(InvalidValue, match="logp must be free of NaN"):
            rule.combine(torch.full((3, 4), math.nan))


@pytest.mark.parametrize("shape", [(3,), (1, 5), (2, 3, 4)])
def test_a_missing_context_is_refused(shape):
    for rule in (NBCE(), MeanPooling(), MaxPooling()):
        with pytest.raises(InvalidValue, match=r"logp must be \[1 \+ contexts, vocabulary\]"):
            rule.combine(torch.zeros(shape))


def test_an_unknown_last_row_is_refused():
    with pytest.raises(InvalidValue, match="last must be a context's row, 1 to 2, got 3"):
        NBCE().combine(torch.zeros(3, 4), last=3)
