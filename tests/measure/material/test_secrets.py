"""Secret numbers in a text: where they are, what of a text is its own, and answers after one reading."""

from random import Random

import pytest
import torch
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.measure.material.secrets import CITIES, LINE, with_secrets
from ropewalk.measure.tasks import Context
from ropewalk.measure.tasks.context import COPIED_TOKENS, LEAD

from measure.subjects import TRAINED, model, subject
from train.texts import tokenizer


def text_of(length, count, seed=1):
    ids = torch.arange(length) % 80 + 3
    return ids, with_secrets(tokenizer(), ids, count, Random(seed))


@pytest.mark.parametrize(("length", "count"), [(300, 1), (300, 4), (900, 8), (2000, 16)])
def test_a_text_keeps_its_length_and_its_end(length, count):
    """The secrets stand at even depths; what is not theirs is the text's, in its order, up to its end."""
    ids, text = text_of(length, count)
    assert len(text.ids_n) == length
    assert len(text.secrets) == count
    plain = text.plain(length)
    own = text.ids_n[plain]
    assert torch.equal(own, ids[-len(own) :])
    assert length - len(own) == sum(secret.tokens for secret in text.secrets)
    lines = [text.ids_n[length - one.distance :][: one.tokens].tolist() for one in text.secrets]
    known = {
        tuple(tokenizer()(LINE.format(city=city, key=key), add_special_tokens=False).input_ids): (city, key)
        for city in CITIES
        for key in _keys(seed=1, count=count)
    }
    assert len({known[tuple(line)] for line in lines}) == count
    behind = [int(plain[length - one.distance :].sum()) / len(own) for one in text.secrets]
    assert behind == pytest.approx([(n + 0.5) / count for n in range(count)], abs=0.02)


def _keys(seed, count):
    random = Random(seed)
    random.sample(CITIES, count)
    return [random.randrange(10_000, 100_000) for _ in range(count)]


def test_a_shorter_text_has_those_within_it():
    _, text = text_of(900, 8)
    for length in (100, 450, 900):
        kept = text.within(length)
        assert [one.distance for one in kept] == [one.distance for one in text.secrets if one.distance <= length]
        assert int((~text.plain(length)).sum()) >= sum(one.tokens for one in kept)
    assert len(text.within(450)) < 8


def test_they_take_at_most_half_a_text():
    for length in (20, 60, 200):
        _, text = text_of(length, 8)
        assert 2 * sum(one.tokens for one in text.secrets) <= length
        assert len(text.ids_n) == length


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    "line", ["", "rerope:window=16+log_n", "streaming:window=20,n_sink=4", "dynamic_yarn", "alibi"]
)
def test_answers_are_those_of_reading_text_and_question_at_once(tmp_path, line):
    who, task = subject(tmp_path, longest=256), Context(samples=1, questions=4)
    with who.under(rw.parse(line, trained_len=TRAINED, target_len=256) if line else rw.Extension()):
        got = task.measure(who, 256, 0)
        text = task.text(who, 0)
        passage = text.ids_n[: LEAD + min(COPIED_TOKENS, 64)].tolist()
        asked = [([*one.question, *one.answer], len(one.answer)) for one in text.secrets]
        wanted = []
        for more, last in [*asked, (passage, len(passage) - LEAD)]:
            ids = torch.tensor([[*text.ids_n.tolist(), *more]])
            with torch.no_grad():
                logits = who.model(input_ids=ids, use_cache=False).logits[0, -last - 1 : -1]
            wanted.append(float(cross_entropy(logits.double(), ids[0, -last:])))
    assert [each["loss"] for each in got["answers"]] == pytest.approx(wanted[:-1], rel=1e-3)
    assert got["copied_loss"] == pytest.approx(wanted[-1], rel=1e-3)
    assert [each["far"] for each in got["answers"]] == [one.distance > TRAINED for one in text.secrets]
    assert [each["distance"] for each in got["answers"]] == [one.distance for one in text.secrets]


def test_what_is_hidden_is_not_scored(tmp_path):
    who, task = subject(tmp_path, longest=256), Context(samples=1, questions=4, last=120)
    got, text = task.measure(who, 256, 0), task.text(who, 0)
    with torch.no_grad():
        logits = model()(input_ids=text.ids_n[None]).logits[0, :-1]
    losses = cross_entropy(logits, text.ids_n[1:], reduction="none")[-120:]
    assert 0 < (~text.plain(120)).sum() < 120
    assert got["loss"] == pytest.approx(float(losses[text.plain(120)].mean()), abs=1e-4)
    assert got["loss"] != pytest.approx(float(losses.mean()), abs=1e-4)


def test_found_and_far_are_shares_of_all_questions():
    def answers(*rights):
        return [{"distance": d, "far": d > 50, "right": right, "loss": 1.0} for d, right in rights]

    plain = {"project": "a", "loss": 1.0, "accuracy": 0.5, "bits_per_byte": 1.0}
    results = [
        plain | {"answers": answers((10, True), (60, True), (90, False))},
        plain | {"project": "b", "answers": answers((10, False), (60, False), (90, False))},
    ]
    numbers = Context(samples=2).condense(results)
    assert (numbers["found"].value, numbers["found"].of) == (pytest.approx(2 / 6), 6)
    assert (numbers["far"].value, numbers["far"].of) == (pytest.approx(1 / 4), 4)
    assert "far" not in Context(samples=1).condense([plain | {"answers": answers((10, True))}])
