"""The search for documents that are long enough, among many that are not."""

import json
from dataclasses import replace

import pytest

from ropewalk.errors import DoesNotFit
from ropewalk.measure.material import passage_search as module

from measure.subjects import subject
from train.texts import text


@pytest.fixture
def rows(tmp_path):
    """A subject of rows with so many words each."""

    def written(*words):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps({"text": text(n, count)}) + "\n" for n, count in enumerate(words)))
        return replace(subject(tmp_path), corpus=f"all:{path}", longest=400)

    return written


def test_long_documents_are_found_behind_many_that_are_too_short(rows, monkeypatch):
    """Those that are too short in bytes are not tokenised, and do not count."""
    monkeypatch.setattr(module, "MOST_TOKENISED", 3)
    tokenised = []
    who = rows(*[60] * 50, 900, *[60] * 50, 900)
    counting = lambda words, **options: tokenised.append(words) or own(words, **options)  # noqa: E731
    own = who.tokenizer
    long = replace(who, tokenizer=counting).passages(2)
    assert [ids.tolist() for ids in long] == [own.encode(text(n, 900))[:400] for n in (50, 101)]
    assert len(tokenised) == 2


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u4e00", "\U0001f600"])
def test_a_character_may_be_several_tokens(rows, tmp_path, character):
    """So characters must not be counted instead: the tokenizer of these tests has learned none of the last three."""
    who = rows(60)
    words = "".join(f"{character}{n % 7}" for n in range(150))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": words}) + "\n")
    tokens = who.tokens(words)
    for longest in (tokens, tokens + 1):
        assert replace(who, longest=longest, _passages=[]).count(9) == (longest == tokens)


@pytest.mark.parametrize(
    ("limits", "words", "said"),
    [
        ({}, [900] * 5, "it has 5; ask for fewer"),
        ({}, [60] * 5, "it has 0; ask for fewer"),
        ({"MOST_TOKENISED": 5}, [900] * 5, "it has 5; ask for fewer"),  # nothing was left
        (
            {"MOST_TOKENISED": 5},
            [900] * 9,
            "it has 5; only its first 5 held-out documents were searched; ask for fewer",
        ),
        (
            {"MOST_TOKENISED": 3},
            [60, 900] * 5,
            "it has 3; only its first 6 held-out documents were searched; ask for fewer",
        ),
        ({"MOST_READ": 2000}, [60] * 2400, "it has 0; only its first 2,000 held-out documents were searched; ask"),
    ],
)
def test_the_error_says_in_how_many_documents_was_searched(rows, monkeypatch, limits, words, said):
    for name, value in limits.items():
        monkeypatch.setattr(module, name, value)
    with pytest.raises(DoesNotFit, match="one with 20 held-out documents of 400 tokens") as refused:
        rows(*words).passages(20)
    assert said in str(refused.value)
