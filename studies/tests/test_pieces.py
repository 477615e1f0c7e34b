"""Claims about pieces of several contexts, from made-up answers; and the prompts."""

from random import Random

import pytest
import torch
from transformers import AutoTokenizer

from ropewalk import load
from ropewalk.measure.material.subject import Subject
from ropewalk.models import DEFAULT

from studies import pieces as module


def words(one, several, count=100):
    """So many of a hundred are right."""
    answers = {module.ONE: [n < one for n in range(count)], module.SEVERAL: [n < several for n in range(count)]}
    kept = {module.RIGHT: {module.PIECES: answers, module.COMBINED: answers}}
    return {each.claim.name: each.reason or each.word for each in module.verdicts(kept)}


def test_every_claim_can_hold_and_fail():
    assert words(90, 95) == {"nbce-pieces": "agrees", "nbce-combined": "undecided"}
    assert words(95, 20) == {"nbce-pieces": "disagrees at this size", "nbce-combined": "agrees"}
    assert words(76, 98)["nbce-combined"] == "disagrees at this size"
    assert words(90, 82)["nbce-pieces"] == "undecided"


def test_a_model_that_cannot_answer_from_one_context_cannot_tell():
    assert set(words(74, 0).values()) == {module.UNABLE}
    answers = {name: {module.ONE: [False] * 3, module.SEVERAL: []} for name in module.ASKED}
    (first, _) = module.verdicts({module.RIGHT: answers})
    assert (
        "From one context that has both the model answers 0 of 3, from least entropy of two contexts 0."
        in first.record["note"]
    )


@pytest.fixture(scope="module")
def subject():
    model, tokenizer = load(DEFAULT).float(), AutoTokenizer.from_pretrained(DEFAULT)
    return Subject(model=model, tokenizer=tokenizer, corpus="stdlib", longest=512)


@pytest.mark.parametrize("name", module.ASKED)
def test_each_context_has_one_of_the_facts(subject, name):
    asked = module.ASKED[name]
    both, (alone, *contexts), numbers = module.prompts_of(subject, asked, Random(0))
    facts = [[line.format(**numbers).strip() for line in lines] for lines in asked.lines]
    has = [[{line in prompt.text for line in lines} for lines in facts] for prompt in (both, alone, *contexts)]
    assert [[each == {True} for each in row] for row in has] == [
        [True, True],
        [False, False],
        [True, False],
        [False, True],
    ]
    assert {prompt.length for prompt in (both, *contexts)} == {512}
    assert len({prompt.answer_ids for prompt in (both, alone, *contexts)}) == 1


@pytest.mark.parametrize("name", module.ASKED)
def test_the_digits_of_the_answer_and_nothing_else_are_scored(subject, name):
    both, _, numbers = module.prompts_of(subject, module.ASKED[name], Random(1))
    scored = [both.answer_ids[place] for place in module.digits_of(subject, both, numbers)]
    asked = [number for number in numbers.values() if number in both.answer]
    assert "".join(subject.tokenizer.decode(scored).split()) == "".join(asked)


def test_an_answer_is_right_if_every_digit_is(subject, monkeypatch):
    """With a stand-in for the model that knows the answer from the contexts that have its facts."""
    from ropewalk.measure.tasks import many_contexts

    def knows(wrong):
        def read(_, prompts):
            size = len(subject.tokenizer)
            logp = torch.full((len(prompts), len(prompts[0].answer_ids), size), -20.0)
            for row, prompt in enumerate(prompts[1:], 1):
                for place, token in enumerate(prompt.answer_ids):
                    logp[row, place, (token + (place == wrong)) % size] = 0.0
            return logp.log_softmax(-1)

        return read

    asked = module.ASKED[module.PIECES]
    both, _, numbers = module.prompts_of(subject, asked, Random(2))
    digits = module.digits_of(subject, both, numbers)
    other = next(place for place in range(len(both.answer_ids)) if place not in digits)
    for wrong, right in ((None, True), (other, True), (digits[-1], False)):
        monkeypatch.setattr(many_contexts, "read", knows(wrong))
        assert set(module.answered(subject, asked, Random(2)).values()) == {right}
