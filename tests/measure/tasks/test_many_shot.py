"""Examples of a made-up rule: who learns the rule is right, the curve is by the number of examples before."""

import re
from collections import Counter

import pytest
import torch

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.use.long_text import TokenScores
from ropewalk.measure.tasks import LabelMap, Shots

from measure import oracles

EXAMPLE = re.compile(r"^(\w+) (\w+)\nlabel: (\d\d)$", re.MULTILINE)


def learnt(text):
    """The label of the last input, from the examples before it."""
    rule = {noun: label for _, noun, label in EXAMPLE.findall(text)}
    return rule[re.search(r"(\w+) (\w+)\nlabel:$", text)[2]]


def test_who_learns_the_rule_is_right_and_a_random_model_is_wrong(who, monkeypatch):
    task = LabelMap(labels=6)
    assert not any(task.measure(who, 400, sample)["right"] for sample in range(3))
    for sample in range(5):
        prompt = task.prompt(who, 400, sample)
        assert prompt.answer == f" {learnt(prompt.text)}"
    oracles.put(monkeypatch, who, learnt)
    numbers = task.condense([task.measure(who, 400, sample) for sample in range(3)])
    assert (numbers["right"].value, numbers["loss"].value) == (1, 0)
    assert numbers["chance"].value == pytest.approx(1 / 6)


@pytest.mark.parametrize("length", [400, 431, 1000])
def test_lengths_are_exact(who, length):
    for sample in range(3):
        assert LabelMap(labels=6).prompt(who, length, sample).length == length
        assert len(Shots().prompt(who, length, sample).ids) == length


def test_examples_come_in_rounds_of_all_labels_and_the_input_is_new(who):
    text = LabelMap(labels=5).prompt(who, 1000, 0).text
    shown = EXAMPLE.findall(text)
    assert "mapping" in text[: EXAMPLE.search(text).start()]  # what is to be learned is said before the first example
    rounds = [shown[begin : begin + 5] for begin in range(0, len(shown) - 4, 5)]
    assert len(rounds) > 3
    assert all(len({label for *_, label in one}) == 5 for one in rounds)
    assert len({tuple(label for *_, label in one) for one in rounds}) > 1  # in another order
    assert len({(noun, label) for _, noun, label in shown}) == 5
    asked = re.search(r"(\w+) (\w+)\nlabel:$", text).groups()
    assert asked not in {(first, noun) for first, noun, _ in shown}


def test_the_input_that_is_asked_for_is_never_shown(monkeypatch, who):
    """With three first words, examples would else soon repeat it."""
    monkeypatch.setattr("ropewalk.measure.tasks.many_shot.examples.ADJECTIVES", ("amber", "calm", "shiny"))
    for sample in range(4):
        text = LabelMap(labels=3).prompt(who, 600, sample).text
        assert text.count(re.search(r"(\w+ \w+)\nlabel:$", text)[1]) == 1


def labels_in(who, text):
    return [who.tokenizer.decode(list(text.ids[span])) for span in text.answers]


def test_every_label_is_a_question_to_who_read_those_before(who):
    text = Shots(labels=3).prompt(who, 700, 0)
    labels = labels_in(who, text)
    assert len(labels) > 20
    assert all(re.fullmatch(r" \d\d", label) for label in labels)
    shown = EXAMPLE.findall(who.tokenizer.decode(list(text.ids)) + "\n")
    assert [label for *_, label in shown][: len(labels)] == [label.strip() for label in labels]
    assert len({(noun, label) for _, noun, label in shown}) == 3
    assert min(Counter(labels).values()) > 1


def test_the_curve_is_by_the_number_of_examples_before(who, monkeypatch):
    """Right are the labels after 2 and 3 examples and after 9; wrong in one token is wrong."""
    task = Shots(labels=3)
    spans = task.prompt(who, 700, 0).answers

    def told(model, ids, **_):
        hits = torch.zeros(1, ids.shape[1] - 1, dtype=torch.bool)
        for number in (2, 3, 9):
            hits[0, spans[number].start - 1 : spans[number].stop - 1] = True
        hits[0, spans[5].start - 1] = True
        return TokenScores(torch.ones(hits.shape), hits)

    monkeypatch.setattr("ropewalk.measure.tasks.answers.score_tokens", told)
    result = task.measure(who, 700, 0)
    assert [number for number, hit in enumerate(result["right"]) if hit] == [2, 3, 9]
    assert (result["loss"], result["chance"]) == (1, 1 / 3)


def test_numbers_of_a_curve_by_hand():
    """Seven labels of one text and five of another: by 0, 1, 2 to 3 and 4 to 7 examples; late are the last 4 and 3."""
    results = [
        {"right": [False, True, True, True, True, True, False], "loss": 1.0, "chance": 0.25},
        {"right": [False, False, True, False, True], "loss": 3.0, "chance": 0.25},
    ]
    numbers = Shots().condense(results)
    curve = {name: (each.value, each.of) for name, each in numbers.items() if name.startswith("after")}
    assert curve == {"after_0": (0, 2), "after_1": (1 / 2, 2), "after_2": (3 / 4, 4), "after_4": (3 / 4, 4)}
    assert (numbers["right"].value, numbers["right"].of) == (5 / 7, 7)
    assert (numbers["loss"].value, numbers["chance"].value) == (2, 0.25)


def test_a_longer_text_begins_as_a_shorter_one_of_the_same_words(who):
    text, more = (Shots()._text(Shots().chance(who, 500, 0), count)[0] for count in (8, 16))
    assert more.startswith(text)


def test_what_is_refused(who):
    with pytest.raises(InvalidValue, match="labels must be from 2 to 90, got 91"):
        LabelMap(labels=91)
    with pytest.raises(InvalidValue, match="labels must be from 2 to 90, got 1"):
        Shots(labels=1)
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+, for the prompt without filler, got 150"):
        LabelMap(labels=30).require(who, [150, 2000])
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+, the end of 20 examples, got 150"):
        Shots(labels=10).require(who, [150, 2000])
