"""Prompts: their length, where the needle is, and that the answer is in it once and can be written."""

from copy import deepcopy

import pytest
from hypothesis import given, strategies as st

from ropewalk.errors import DoesNotFit
from ropewalk.measure.material.prompts import (
    FAR_LINE,
    FAR_SHARE,
    GrowingPrompt,
    HiddenLines,
    fill_prompt,
    scatter,
    tokens_of,
    tokens_with_offsets,
    with_needle,
)

from train.texts import text, tokenizer

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
    before, needle, after = prompt(1000, depth).text.partition("The key is 71945.\n")
    assert needle
    assert before == "" or before.endswith("\n")
    around = len(before) + len(after) - len("What is the key? The key is")
    assert len(before) / around == pytest.approx(depth, abs=80 / around)


PIECES = st.text(st.sampled_from("ab \n"), min_size=1, max_size=600)


@given(PIECES, st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 9000))
def test_what_is_hidden_is_near_its_depth_and_a_line_of_its_own(filler, depths, size):
    """Whatever lines and words the text has: a paragraph to a line, or no white space at all."""
    hidden = [HiddenLines(f"<{n}>\n", depth) for n, depth in enumerate(depths)]
    whole = scatter(filler, hidden, size)
    far = max(FAR_LINE, round(FAR_SHARE * size)) + 1
    for n, depth in enumerate(depths):
        place = whole.index(f"<{n}>")
        before = whole[:place]
        for other in hidden:
            before = before.replace(other.text, "")
        assert abs(len(before) - round(depth * size)) <= far + len(depths)  # and a line break for each
        assert place == 0 or whole[place - 1] == "\n"


def test_the_answer_is_there_once_even_if_the_filler_has_it():
    assert prompt(500, filler=FILLER + "it says 71945 here\n" + FILLER).text.count("71945") == 1


@pytest.mark.parametrize("length", range(75, 140))
def test_units_and_filler_fill_a_length_to_the_token(length):
    """Units of one line; what no line fills is filler before them, and never as much as two lines."""
    line, question = "the rope is long and the walk is short\n", "What is long? It is"
    growing = GrowingPrompt(lambda count: line * count + question, " the rope")
    made, count = fill_prompt(tokenizer(), growing, length, FILLER)
    assert made.length == length
    assert made.text.endswith(line * count + question)
    before = made.text.removesuffix(line * count + question)
    assert before == "" or (before.endswith("\n\n") and FILLER.startswith(before[:-2]))
    assert len(tokenizer().encode(before)) <= len(tokenizer().encode(line)) + 8
    assert len(tokenizer().encode(line + made.text.removeprefix(before) + made.answer)) > length - 8


def test_tokens_of_characters():
    offsets = [(0, 3), (3, 5), (5, 6)]
    assert tokens_of(slice(3, 5), offsets) == slice(1, 2)
    assert tokens_of(slice(0, 6), offsets) == slice(0, 3)
    with pytest.raises(DoesNotFit, match=r"joins the answer and the question in the token at \(0, 3\)"):
        tokens_of(slice(2, 5), offsets)


def test_a_tokenizer_that_does_not_know_its_characters_is_refused():
    slow = deepcopy(tokenizer())
    slow.__class__ = type("Slow", (type(slow),), {"is_fast": False})
    with pytest.raises(DoesNotFit, match="tokenizer must be a fast one, which knows the characters of each token, got"):
        tokens_with_offsets(slow, "the rope")


def test_what_does_not_fit():
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+, for the prompt without filler"):
        prompt(10)
    with pytest.raises(DoesNotFit, match="lines without the answer"):
        prompt(filler="71945\n")
    with pytest.raises(DoesNotFit, match="joins the end of the prompt and the answer 'he rope' in one token"):
        prompt(question="What is the key? t", answer="he rope")  # "the" is one piece
