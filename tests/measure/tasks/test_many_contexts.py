"""Many contexts: prompts that differ in one fact, and the answer that NBCE writes."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.errors import Conflict
from ropewalk.measure.material.prompts import Prompt
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.opened_model import load_by_name
from ropewalk.measure.tasks import ManyContexts
from ropewalk.measure.tasks.many_contexts import combine, read, retrieve
from ropewalk.measure.tasks.passkey import QUESTION
from ropewalk.methods.decoding import NBCE, MeanPooling

from measure.subjects import subject

TASK = ManyContexts(samples=4, piece=100)


@pytest.fixture(scope="module")
def carried():
    host = load_by_name("default")
    return Subject(model=host.model, tokenizer=host.tokenizer, corpus="stdlib", longest=512)


def test_one_context_has_the_passkey_and_all_have_the_length(tmp_path):
    who = subject(tmp_path, longest=120)
    for sample in range(4):
        alone, *prompts = TASK.prompts(who, 400, sample)
        key = alone.answer.strip()
        assert alone.text == QUESTION
        assert [key in prompt.text for prompt in prompts] == [place == sample for place in range(4)]
        assert {prompt.length for prompt in prompts} <= {99, 100}
        assert {prompt.answer_ids for prompt in prompts} == {alone.answer_ids}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("pooling", "line"), [("entropy", "nbce"), ("mean", "parallel_windows"), ("max", "max_pooling")]
)
def test_what_is_right_is_what_the_model_writes(carried, pooling, line):
    """By greedy decoding of the whole answer, with padding and caches."""
    task = ManyContexts(samples=3, pooling=pooling)
    for sample in range(3):
        alone, *prompts = task.prompts(carried, 1536, sample)
        contexts = [prompt.text.removesuffix(QUESTION) for prompt in prompts]
        count = len(alone.answer_ids)
        answer = rw.nbce_generate(
            carried.model, carried.tokenizer, contexts, QUESTION, decoding=line, max_new_tokens=count
        )
        measured = task.measure(carried, 1536, sample)
        assert measured["right"] == ([token.id for token in answer.tokens] == list(alone.answer_ids))
        if pooling == "entropy":
            assert measured["right"]
            sources = [token.context == sample for token in answer.tokens]
            # The space before the digits, of which all are equally sure, may come from any context.
            assert measured["context_right"] == pytest.approx(sum(sources) / count, abs=1.01 / count)


@pytest.mark.nightly
def test_rows_are_read_in_batches_of_equal_length(carried, monkeypatch):
    prompts = ManyContexts(samples=2).prompts(carried, 1536, 0)
    whole = read(carried, prompts)
    monkeypatch.setattr("ropewalk.measure.tasks.many_contexts.BATCH_ROWS", 1)
    assert torch.allclose(read(carried, prompts), whole, atol=1e-4)
    assert whole.shape[:2] == (4, len(prompts[0].answer_ids))


def test_a_token_without_probability_has_a_finite_loss():
    logp = torch.tensor([[0.97, 0.02, 0.01]] * 3).log()[:, None]
    filtered = combine(NBCE(), logp, [2])
    assert filtered.losses == [20.0]
    assert filtered.hits == [False]
    assert combine(MeanPooling(beta=0), logp, [2]).losses[0] == pytest.approx(4.605, abs=1e-3)


def test_a_product_is_exact_naive_bayes():
    """p(T | C_1, .., C_n) ~ p(T) times p(T | C_k) / p(T) of every context."""
    p_bv = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)).softmax(-1)
    exact = p_bv[0] * (p_bv[1:] / p_bv[0]).prod(0)
    rule = ManyContexts(samples=1, pooling="product").rule(contexts=4)
    loss = combine(rule, p_bv.log()[:, None], [3]).losses[0]
    assert loss == pytest.approx(-float((exact / exact.sum())[3].log()), abs=1e-5)


def test_the_rule_is_in_the_title():
    assert TASK.title == "many_contexts_entropy_0.25"
    assert ManyContexts(samples=1, pooling="mean", beta=0).title == "many_contexts_mean_0"
    assert ManyContexts(samples=1, pooling="product").title == "many_contexts_product"
    for pooling in ("product", "retrieved"):
        with pytest.raises(Conflict, match=f"beta must be left out where pooling is {pooling}, got 1"):
            ManyContexts(samples=1, pooling=pooling, beta=1)
    assert ManyContexts(samples=1, pooling="retrieved").title == "many_contexts_retrieved"


def test_a_retrieved_context_is_read_alone(carried):
    """As a passkey in one text: the loss is that of the model, whatever stands in the other contexts."""
    task, found = ManyContexts(samples=3, pooling="retrieved"), []
    for sample in range(3):
        prompts = task.prompts(carried, 1536, sample)[1:]
        place, measured = retrieve(prompts), task.measure(carried, 1536, sample)
        prompt = prompts[place]
        with torch.no_grad():
            logits = carried.model(torch.tensor([[*prompt.ids, *prompts[sample].answer_ids]])).logits[0]
        count = len(prompt.answer_ids)
        losses = cross_entropy(logits[-1 - count : -1].float(), torch.tensor(prompts[sample].answer_ids))
        assert measured["loss"] == pytest.approx(float(losses), abs=1e-4)
        assert measured["context_right"] == (place == sample)
        assert measured["contexts"] == 3
        found.append(place)
    assert len(set(found)) > 1  # it is not always the same place


def test_the_retrieved_context_is_the_one_that_names_what_is_asked_for():
    texts = ["the value is the sum", "Remember it. 12345 is the pass key.", "a key of a door"]
    prompts = [Prompt(text + QUESTION, " 1", (1,), (2,)) for text in texts]
    assert retrieve(prompts) == 1
    assert retrieve([prompts[0]] * 3) == 0
