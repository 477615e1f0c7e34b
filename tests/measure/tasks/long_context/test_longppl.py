"""LongPPL: which tokens are read how, condensed by hand, made once, and refused where it cannot be."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, Unreadable
from ropewalk.measure.comparison.comparison import measure_candidates
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.report.comparison import as_json
from ropewalk.measure.tasks import Context, LongPPL
from ropewalk.measure.tasks.long_context import longppl
from ropewalk.measure.tasks.long_context.key_texts import KeyText, read_key_texts, write_key_texts

from measure.subjects import model, subject
from train.texts import tokenizer

EASY = {"reference": "rerope:window=16", "gain": 0.05, "most": 9.0}  # a model that was never trained has key tokens


@pytest.fixture
def who(tmp_path):
    return subject(tmp_path, longest=70)


def file_of(folder, *texts):
    place = folder / "keys.json"
    write_key_texts(place, texts, {})
    return str(place)


def key_of(who, sample, tokens):
    """A passage of which these tokens are key tokens."""
    ids = who.passages(sample + 1)[sample]
    text = tokenizer().decode(ids)
    offsets = tokenizer()(text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
    return ids, KeyText(text, tuple(offsets[n] for n in tokens), 2.0, 2.0)


@pytest.mark.parametrize("length", [32, 69, 70])
def test_key_tokens_are_read_in_windows_of_the_length(who, tmp_path, length):
    """By the definition: the window of a token begins at a multiple of half the length, the last one earlier."""
    tokens = [5, 40, 44, 66]
    ids, key = key_of(who, 0, tokens)
    got = LongPPL(samples=1, keys=file_of(tmp_path, key)).measure(who, length, 0)
    window = min(length, 69)
    ends = [window, *range(window + window // 2, 69, window // 2), 69]
    losses = []
    for n in range(1, 70):
        end = next(end for end in ends if n <= end)
        with torch.no_grad():
            logits = who.model(input_ids=ids[None, end - window : n], use_cache=False).logits[0, -1]
        losses.append(float(cross_entropy(logits[None], ids[n : n + 1])))
    assert got["loss"] == pytest.approx(sum(losses[n - 1] for n in tokens) / 4, abs=1e-4)
    assert got["all"] == pytest.approx(sum(losses) / 69, abs=1e-4)
    assert (got["keys"], got["tokens"], got["carried"]) == (4, 69, 1.0)


def test_condensed_by_hand():
    """One key token of 3 nats and three of 1: 6 nats over 4 tokens. A text without key tokens counts for the rest."""
    results = [
        {"loss": 3.0, "all": 2.0, "keys": 1, "tokens": 10},
        {"loss": 1.0, "all": 4.0, "keys": 3, "tokens": 30},
        {"loss": 0.0, "all": 9.0, "keys": 0, "tokens": 10},
    ]
    numbers = LongPPL().condense(results)
    assert numbers["loss"].value == pytest.approx(1.5)
    assert numbers["longppl"].value == pytest.approx(math.exp(1.5))
    assert numbers["perplexity"].value == pytest.approx(math.exp((20 + 120 + 90) / 50))
    assert (numbers["longppl"].of, numbers["perplexity"].of) == (2, 3)
    assert numbers["loss"].low >= 0
    with pytest.raises(DoesNotFit, match="texts must be at least one with key tokens, got 'none of 1'"):
        LongPPL().condense(results[2:])


def test_the_tokens_are_made_once_and_the_file_is_used(who, tmp_path, monkeypatch):
    task = LongPPL(samples=2, **EASY)
    ready = task.prepared(who, tmp_path / "out")
    (place,) = (tmp_path / "out").iterdir()
    assert ready == LongPPL(samples=2, keys=str(place))
    record = json.loads(place.read_text())
    assert record["reference"]["extension"] == "rerope:window=16"
    assert record["reference"]["weights"] == who.marks["weights"]
    assert (record["gain"], record["most"], record["window"], record["stride"]) == (0.05, 9.0, 32, 16)
    for length in (40, 70):  # the same as when they are made on the way
        assert ready.measure(who, length, 1) == task.measure(who, length, 1)
    monkeypatch.setattr(longppl, "key_text", None)
    assert task.prepared(who, tmp_path / "out") == ready
    assert ready.prepared(who, tmp_path / "out") is ready
    for other in (replace(task, samples=1), replace(task, gain=0.06), replace(task, reference="rerope:window=17")):
        with pytest.raises(TypeError):  # that would be another file
            other.prepared(who, tmp_path / "out")


def test_the_names_of_cells_have_the_tokens_and_not_the_path(who, tmp_path):
    _, key = key_of(who, 0, [5, 40])
    names = [
        LongPPL(samples=1, keys=file_of(tmp_path / folder, text)).identity(0)
        for folder, text in (("a", key), ("b", key), ("c", key._replace(keys=key.keys[:1])))
    ]
    assert names[0] == names[1] != names[2]
    assert str(tmp_path) not in json.dumps(names)
    assert LongPPL(samples=1).identity(0) != LongPPL(samples=1, gain=3).identity(0)


def test_a_comparison_judges_all_on_the_same_tokens(tmp_path):
    who = subject(tmp_path, longest=70)
    task = LongPPL(samples=2, **EASY)
    made = measure_candidates(
        who, ["pi", "rerope:window=16"], [70], Store(tmp_path / "out" / "cells"), tasks=[Context(samples=2), task]
    )
    assert made.tasks[1] == task  # without the path
    (place,) = (tmp_path / "out").glob("key-tokens-*.json")
    assert str(place) not in json.dumps(as_json(made)["tasks"])
    counts = [len(text.keys) for text in read_key_texts(str(place))]
    for candidate in made.candidates:
        for length in (32, 70):
            samples = candidate.at("longppl", length).samples
            assert [sample["keys"] > 0 for sample in samples] == [count > 0 for count in counts]
            assert samples[0]["keys"] == made.base.at("longppl", 32).samples[0]["keys"]
    losses = [candidate.at("longppl", 70).numbers["loss"].value for candidate in made.candidates]
    assert len(set(losses)) == 3
    assert losses[2] == min(losses)  # it chose them


def test_what_is_refused(who, tmp_path):
    _, key = key_of(who, 0, [5, 40])
    path = file_of(tmp_path, key)
    with pytest.raises(Conflict, match="longppl has keys and a reference, gain or most"):
        LongPPL(keys=path, gain=1.0)
    with pytest.raises(InvalidValue, match="gain must be above 0"):
        LongPPL(gain=0)
    with pytest.raises(
        DoesNotFit, match=r"samples must be at most 1, the texts of .*keys.json, got 2; ask for samples=1"
    ):
        LongPPL(samples=2, keys=path).require(who, [70])
    with pytest.raises(DoesNotFit, match=r"lengths must be at most 70, the tokens of text 0 of .*, got 87"):
        LongPPL(samples=1, keys=path).require(who, [32, 87])
    LongPPL(samples=1, keys=path).require(who, [32, 86])
    with pytest.raises(Unreadable, match="keys must be a file that exists"):
        LongPPL(samples=1, keys="nowhere").require(who, [70])
    short = subject(tmp_path, longest=32)
    for refusing in (lambda: LongPPL().require(short, [32]), lambda: LongPPL().prepared(short, tmp_path)):
        with pytest.raises(DoesNotFit, match=r"longest length must be one above the trained length \(32\)"):
            refusing()


def test_a_reference_that_cannot_be(who, tmp_path):
    with pytest.raises(rw.UnknownName, match="rerop"):
        LongPPL(reference="rerop").prepared(who, tmp_path)
    with pytest.raises(DoesNotFit, match="finds no key token in 2 texts"):
        LongPPL(samples=2, reference="rerope:window=16", gain=50.0).prepared(who, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_it_stays_without_an_extension(who, tmp_path):
    before = who.model(input_ids=who.passages(1)[0][None]).logits
    LongPPL(samples=1, **EASY).prepared(who, tmp_path)
    assert torch.equal(model()(input_ids=who.passages(1)[0][None]).logits, before)
