"""Needles that share no word with their question: who follows the association is right, who guesses is by chance."""

import re
from random import Random

import pytest

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.measure.material.secrets import LANDMARKS, PEOPLE, TOWNS
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.tasks import Latent
from ropewalk.measure.tasks.answers import AnswerScore
from ropewalk.measure.tasks.long_context.latent import ASKED, NEIGHBOUR, OWNER, associations

from measure.subjects import model
from measure.tasks.lossy import lossy
from train.texts import tokenizer

KINDS = ("stated", "known")


def solved(text):
    """Who is asked for, by the text alone and, for the known kind, the world."""
    place = re.search(r"from (\w+)\? That is$", text)
    if place:
        thing = re.search(rf"The (\S+) came from {place[1]}\.", text)[1]
        return re.search(rf"(\w+) bought the {thing}\.", text)[1]
    place = re.search(r"been to (\w+)\? That is$", text)[1]
    (thing,) = (thing for thing, home in LANDMARKS.items() if home == place)
    return re.search(rf"(\w+) lives beside {thing}\.", text)[1]


def put(monkeypatch, choose):
    """A model for which the person that `choose` names costs nothing, and everybody else 2 nats a token."""

    def told(subject, prompt):
        cheap = choose(prompt.text) == prompt.answer.strip()
        return AnswerScore(cheap, 0.0 if cheap else 2.0)

    monkeypatch.setattr("ropewalk.measure.tasks.long_context.latent.score_answer", told)


@pytest.mark.parametrize("kind", KINDS)
def test_who_follows_the_association_is_right_at_every_depth(who, monkeypatch, kind):
    put(monkeypatch, solved)
    task = Latent(samples=6, kind=kind, depths=3)
    results = [task.measure(who, length, sample) for length in (400, 500) for sample in range(6)]
    assert all(result["right"] and result["greedy"] and result["loss"] == 0 for result in results)
    assert [result["depth"] for result in results[:4]] == [0.0, 0.5, 1.0, 0.0]
    assert all(result["margin"] >= 2 for result in results)  # at least a token of 2 nats


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_who_takes_anybody_in_the_text_has_chance_level(who, monkeypatch, kind):
    """The first, the last and the best-loved name are right once in four prompts: the right one is drawn."""
    task = Latent(samples=120, kind=kind)
    named = [re.findall("|".join(PEOPLE), task.prompt(who, 400, sample).text) for sample in range(120)]
    right = [task.posed(who, 400, sample).people[0] for sample in range(120)]
    assert all(len(set(people)) == len(people) == 4 for people in named)
    for guess in (lambda people: people[-1], min):
        assert 14 <= sum(guess(people) == name for people, name in zip(named, right, strict=True)) <= 46


@pytest.mark.parametrize("kind", KINDS)
def test_needle_and_question_share_no_word(kind):
    """The words of the needle, of people and things of every draw, are none of the question's, of any place."""
    needle = OWNER if kind == "stated" else NEIGHBOUR
    for seed in range(200):
        drawn = associations(Random(seed), kind, 4)
        for one in drawn:
            said = set(re.findall(r"\w+", needle.format(**one._asdict()).lower()))
            for other in drawn:
                assert not said & set(re.findall(r"\w+", ASKED[kind].format(place=other.place).lower()))
        assert len({one.thing for one in drawn}) == len({one.place for one in drawn}) == 4


def test_the_needle_stands_where_its_depth_says(who):
    task = Latent(depths=3)
    for sample, place in ((0, 0.0), (1, 0.5), (2, 1.0)):
        posed = task.posed(who, 1200, sample)
        filler = posed.prompt.text[: posed.prompt.text.rindex("Which person")]
        clean = re.sub(r"\w+ bought the \S+\.\n|The \S+ came from \w+\.\n", "", filler)
        needle = re.search(rf"{posed.people[0]} bought", filler).start()
        before = re.sub(r"\w+ bought the \S+\.\n|The \S+ came from \w+\.\n", "", filler[:needle])
        assert len(before) / len(clean) == pytest.approx(place, abs=0.15)
        assert 1190 <= posed.prompt.length <= 1200


def test_every_name_fits_into_the_length(who):
    posed = Latent(people=24).posed(who, 2000, 0)
    assert len(posed.people) == 24
    assert len(posed.prompt.ids) + max(who.tokens(f" {name}") for name in posed.people) <= 2000


def test_the_whole_name_counts_and_not_its_mean_token(who, monkeypatch):
    """By hand: the right name costs 2 nats a token, others 3; in nats a short wrong name may be cheaper."""
    task = Latent()
    posed = task.posed(who, 400, 0)
    cost = {name: who.tokens(f" {name}") for name in posed.people}

    def told(subject, prompt):
        return AnswerScore(False, 2.0 if prompt.answer.strip() == posed.people[0] else 3.0)

    monkeypatch.setattr("ropewalk.measure.tasks.long_context.latent.score_answer", told)
    result = task.measure(who, 400, 0)
    cheapest = min(3 * cost[name] for name in posed.people[1:])
    assert result["margin"] == pytest.approx(cheapest - 2 * cost[posed.people[0]])
    assert result["right"] == (result["margin"] > 0)
    assert not result["greedy"]


def test_condensed_by_hand():
    """Three of four right, with 5 people: 0.75 - 0.2 above chance, Wilson's ends minus 0.2 too."""
    samples = [{"right": n != 2, "greedy": n == 0, "margin": float(n), "loss": 2.0 * n, "depth": 0.0} for n in range(4)]
    numbers = Latent(people=5).condense(samples)
    assert numbers["right"].value == 0.75
    above = numbers["above_chance"]
    assert above[:3] == pytest.approx((0.55, numbers["right"].low - 0.2, numbers["right"].high - 0.2))
    assert numbers["margin"].value == 1.5
    assert numbers["greedy"].value == 0.25
    assert numbers["loss"].value == 3.0


def test_a_tie_is_not_right(who, monkeypatch):
    monkeypatch.setattr(
        "ropewalk.measure.tasks.long_context.latent.score_answer", lambda subject, prompt: AnswerScore(False, 0.0)
    )
    assert not Latent().measure(who, 400, 0)["right"]


def test_names_are_enough_and_different():
    assert len(set(PEOPLE)) == len(PEOPLE) == 24
    assert len(set(LANDMARKS.values())) == len(LANDMARKS) >= 24
    assert len(set(TOWNS)) >= 24


def test_what_is_refused(who):
    for people in (1, 25):
        with pytest.raises(InvalidValue, match="people must be from 2 to 24"):
            Latent(people=people)
    with pytest.raises(InvalidValue, match="kind must be 'stated' or 'known'"):
        Latent(kind="guessed")
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+, for the prompt without filler"):
        Latent().require(who, [60, 1000])
    other = Subject(model=model(), tokenizer=lossy(), corpus=who.corpus, longest=120)
    with pytest.raises(DoesNotFit, match="tokenizer must be one that decodes to the same text"):
        Latent().require(other, [600])
    assert tokenizer() is who.tokenizer
