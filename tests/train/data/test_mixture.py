"""Data sets mixed at stated shares, and documents sorted by their length."""

from collections import Counter

import pytest
import torch

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.positions import Randomized
from ropewalk.train.data.numbering import Mixture, NumberedRows, mix_two_lengths
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.data.tokens import tokenise

from train.texts import folder_of, text, tokenizer


def corpus(path):
    """Documents of about 130 and of about 700 tokens."""
    folder_of(path / "texts", count=30, words=40)
    for n in range(8):
        (path / "texts" / f"long{n}.txt").write_text(text(100 + n, 250))
    return tokenise(f"folder:{path / 'texts'}", "train", tokenizer(), path / "cache")


def test_documents_by_length(tmp_path):
    tokens = corpus(tmp_path)
    edge = 400
    short, long = tokens.between(0, edge), tokens.between(edge)
    assert len(short) + len(long) == len(tokens)
    assert len(short) > 10
    assert len(long) > 3
    assert all(len(short[n]) == length < edge for n, length in enumerate(short.lengths))
    assert all(len(long[n]) == length >= edge for n, length in enumerate(long.lengths))
    assert len(tokens.between(int(long.lengths.min()), int(long.lengths.min()) + 1)) >= 1  # from, and without


def test_a_part_is_read_row_by_row_in_order(tmp_path):
    parts = [(0.5, PackedRows(corpus(tmp_path), tokenizer(), length=32, count=300, seed=seed)) for seed in (1, 2)]
    rows, longer = Mixture(parts, count=200, seed=3), Mixture(parts, count=300, seed=3)
    places = [0, 0]
    for n in range(200):
        same = [
            torch.equal(rows[n]["input_ids"], part[place]["input_ids"])
            for (_, part), place in zip(parts, places, strict=True)
        ]
        assert sum(same) == 1
        places[same.index(True)] += 1
        assert torch.equal(rows[n]["input_ids"], longer[n]["input_ids"])
    assert min(places) > 60


def test_what_is_refused(tmp_path):
    tokens = corpus(tmp_path)
    packs = PackedRows(tokens, tokenizer(), length=32, count=20)
    with pytest.raises(InvalidValue, match="with a sum of 1"):
        Mixture([(0.5, packs), (0.6, packs)], count=10)
    with pytest.raises(DoesNotFit, match=r"data set 0 must have at least 100 rows, got 20"):
        Mixture([(1.0, packs)], count=100)
    longer = PackedRows(tokens, tokenizer(), length=48, count=20)
    for other in (longer, NumberedRows(packs, Randomized(limit=100))):  # none makes a batch with these
        with pytest.raises(DoesNotFit, match=r"of one kind and length in all data sets .*mix first, then number"):
            Mixture([(0.5, packs), (0.5, other)], count=10)


def test_short_texts_and_long_documents_in_rows_of_one_length(tmp_path):
    rows = mix_two_lengths(corpus(tmp_path), tokenizer(), short=48, share=0.25, length=192, count=400, seed=1)
    last = [int(rows[n]["position_ids"].max()) for n in range(400)]
    kinds = Counter("short" if place < 48 else "long" for place in last)
    assert kinds["short"] / 400 == pytest.approx(0.25, abs=0.07)  # three standard errors
    assert {place for place in last if place < 48} == {47}
    short = next(n for n, place in enumerate(last) if place == 47)
    assert rows[short]["position_ids"].tolist() == [*range(48)] * 4
    assert len(rows[short]["input_ids"]) == 192


def test_two_lengths_need_documents_longer_than_the_short_ones(tmp_path):
    tokens = corpus(tmp_path)
    short = int(tokens.lengths.max())
    with pytest.raises(DoesNotFit, match=f"one with documents of {short + 1} or more tokens"):
        mix_two_lengths(tokens, tokenizer(), short=short, share=0.5, length=2 * short, count=4)
