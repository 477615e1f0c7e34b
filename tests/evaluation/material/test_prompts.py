"""Prompts: their length, where the needle is, and that the answer is in it once and can be written."""

import pytest

from ropewalk.errors import DoesNotFit
from ropewalk.evaluation.material.prompts import with_needle

from lab.texts import text, tokenizer

FILLER = "".join(text(n, words=12) for n in range(60))


def prompt(length=200, depth=0.5, filler=FILLER, question="What is the key? The key is", answer=" 71945"):
    return with_needle(
        tokenizer(),
        filler=filler,
        needle="The key is 71945.\n",
        question=question,
        answer=answer,
        depth=depth,
        length=length,
    )


@pytest.mark.parametrize("length", [43, 64, 100, 257, 512, 1000, 3000])
def test_lengths_are_exact(length):
    made = prompt(length)
    assert made.length == length
    assert len(tokenizer().encode(made.text + made.answer)) == length


@pytest.mark.parametrize("depth", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_needle_stands_between_lines_at_its_depth(depth):
    made = prompt(1000, depth)
    before, needle, after = made.text.partition("The key is 71945.\n")
    assert needle
    assert before == "" or before.endswith("\n")
    around = len(before) + len(after) - len("What is the key? The key is")
    assert len(before) / around == pytest.approx(depth, abs=80 / around)


def test_the_answer_is_there_once_even_if_the_filler_has_it():
    made = prompt(500, filler=FILLER + "it says 71945 here\n" + FILLER)
    assert made.text.count("71945") == 1


def test_what_does_not_fit():
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+, for the prompt without filler"):
        prompt(10)
    with pytest.raises(DoesNotFit, match="lines without the answer"):
        prompt(filler="71945\n")
    with pytest.raises(DoesNotFit, match="joins the end of the prompt and the answer 'he rope' in one token"):
        prompt(question="What is the key? t", answer="he rope")  # "the" is one piece
