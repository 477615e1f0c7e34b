"""Rows of training: what is in them, and that they are the same wherever one begins."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
import torch

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.train.data.packs import IGNORED, PackedRows, collate_items
from ropewalk.train.data.puzzles import KINDS, PuzzleMaker, passkey

from train.texts import text, tokenizer, tokens

SHARES = {"passkey": 0.2, "named_values": 0.1, "repeats": 0.1, "recall": 0.1}


def packs(path, length=64, count=200, puzzles=SHARES, seed=0):
    return PackedRows(tokens(path), tokenizer(), length=length, count=count, seed=seed, puzzles=puzzles)


def test_rows_are_full_and_texts_begin_at_0(tmp_path):
    for row in packs(tmp_path, length=200, count=60):
        ids, positions, labels = row["input_ids"], row["position_ids"], row["labels"]
        assert ids.shape == positions.shape == labels.shape == (200,)
        assert positions[0] == 0
        begins = positions == 0
        assert torch.equal(positions[1:][~begins[1:]], positions[:-1][~begins[1:]] + 1)
        assert torch.equal(labels == IGNORED, begins)
        assert torch.equal(labels[~begins], ids[~begins])


def test_marked_rows_begin_every_text_with_the_marker(tmp_path):
    plain = packs(tmp_path, length=200, count=60)
    marked = PackedRows(tokens(tmp_path), tokenizer(), length=200, count=60, puzzles=SHARES, marker=3)
    for row, other in ((marked[n], plain[n]) for n in range(60)):
        begins = row["position_ids"] == 0
        assert (row["input_ids"][begins] == 3).all()
        assert torch.equal(row["input_ids"][~begins], other["input_ids"][~begins])
        assert torch.equal(row["labels"], other["labels"])


def test_one_time_round_reads_every_token_once(tmp_path):
    corpus = tokens(tmp_path)
    total = int(corpus.lengths.sum())
    rows = PackedRows(corpus, tokenizer(), length=50, count=total // 50)
    read = torch.cat([row["input_ids"] for row in (rows[i] for i in range(len(rows)))])
    every = torch.cat([torch.from_numpy(corpus[n]) for n in range(len(corpus))])
    assert (Counter(every.tolist()) - Counter(read.tolist())).total() == total % 50
    assert not Counter(read.tolist()) - Counter(every.tolist())


def test_the_second_time_round_is_shuffled_anew(tmp_path):
    corpus = tokens(tmp_path)
    per_turn = int(corpus.lengths.sum()) // 50 + 1
    rows = PackedRows(corpus, tokenizer(), length=50, count=3 * per_turn)
    assert not torch.equal(rows[0]["input_ids"], rows[per_turn]["input_ids"])
    seen = [rows[i]["input_ids"] for i in (2 * per_turn, 0, per_turn, 2 * per_turn)]
    assert torch.equal(seen[0], seen[3])  # going back and forth changes nothing


def test_each_time_round_has_an_order_of_its_own(tmp_path):
    corpus = tokens(tmp_path)
    total = int(corpus.lengths.sum())
    rows = PackedRows(corpus, tokenizer(), length=50, count=2 * total // 50)
    read = torch.cat([rows[n]["input_ids"] for n in range(len(rows))])
    begins = {tuple(corpus[n][:12].tolist()): n for n in range(len(corpus))}
    nths = [begins.get(tuple(read[place : place + 12].tolist())) for place in range(len(read))]
    first, second = ([n for n in part if n is not None] for part in (nths[:total], nths[total:]))
    assert sorted(first) == list(range(len(corpus)))
    assert len(second) > len(corpus) // 2
    assert second != first[: len(second)]


def test_puzzles_stand_between_texts_and_skip_none(tmp_path):
    mixed, plain = packs(tmp_path, puzzles={"recall": 0.5, "passkey": 0.0}), packs(tmp_path, puzzles={})
    texts = [mixed[n]["input_ids"] for n in range(200) if mixed._kinds[n] == 0]
    assert 60 < len(texts) < 140
    assert all(torch.equal(own, plain[n]["input_ids"]) for n, own in enumerate(texts))


def test_a_row_depends_on_seed_and_index_alone(tmp_path):
    first, second, longer = packs(tmp_path), packs(tmp_path), packs(tmp_path, count=500)
    for i in (150, 3, 77):
        assert torch.equal(first[i]["input_ids"], second[i]["input_ids"])
        assert torch.equal(first[i]["input_ids"], longer[i]["input_ids"])
    other = packs(tmp_path, seed=1)
    assert not all(torch.equal(first[i]["input_ids"], other[i]["input_ids"]) for i in range(5))


def test_shares_are_what_was_asked_for(tmp_path):
    rows = packs(tmp_path, count=4000)
    counts = Counter(rows._names[kind] for kind in rows._kinds.tolist())
    for name, share in SHARES.items():
        assert counts[name] / 4000 == pytest.approx(share, abs=0.02)


def test_pass_keys_stand_anywhere_and_near_an_end_more_often():
    """Where a model fails first: at the beginning, and right before the question."""
    letters = PuzzleMaker(lambda text: [ord(letter) for letter in text], lambda _, length: [0] * length, 300)
    digits = [[chr(each).isdigit() for each in passkey(letters, Random(n), 4000)] for n in range(1000)]
    tenths = Counter(each.index(True) // 400 for each in digits)
    assert min(tenths[n] for n in range(10)) > 30
    assert min(tenths[0], tenths[9]) > 150


def test_the_answer_of_a_pass_key_is_in_the_text_before(tmp_path):
    rows = packs(tmp_path, length=256, puzzles={"passkey": 1.0})
    asked = 0
    for n in range(30):
        for each in tokenizer().decode(rows[n]["input_ids"]).split("What is the pass key? The pass key is ")[1:]:
            key = each.partition(".")[0]
            asked += 1
            assert key.isdigit()
            assert f"{key} is the pass key." in tokenizer().decode(rows[n]["input_ids"])
    assert asked > 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [64, 65, 127, 128, 129, 500])
def test_puzzles_fill_their_length(tmp_path, kind, length):
    rows = packs(tmp_path, length=length, puzzles={kind: 1.0}, count=5)
    assert all(len(row["input_ids"]) == length for row in rows)
    assert all(int(row["input_ids"].max()) < len(tokenizer()) for row in rows)


def test_repeats_repeat(tmp_path):
    row = packs(tmp_path, length=300, puzzles={"repeats": 1.0})[0]
    begins = [*torch.nonzero(row["position_ids"] == 0).flatten().tolist(), 300]
    piece = row["input_ids"][slice(*max(pairwise(begins), key=lambda piece: piece[1] - piece[0]))]
    assert any(torch.equal(piece[size:], piece[:-size]) for size in range(8, len(piece) // 2 + 1))


def test_batches(tmp_path):
    rows = packs(tmp_path)
    assert collate_items([rows[0], rows[1]])["labels"].shape == (2, 64)


def test_what_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match="length must be at least 2"):
        packs(tmp_path, length=1)
    with pytest.raises(DoesNotFit, match="at least one row of 100000 tokens"):
        packs(tmp_path, length=100_000)
    with pytest.raises(InvalidValue, match="among passkey"):
        packs(tmp_path, puzzles={"crossword": 0.5})
    with pytest.raises(InvalidValue, match="with a sum of at most 1"):
        packs(tmp_path, puzzles={"passkey": 0.6, "recall": 0.6})


def test_numbers_are_read_digit_by_digit():
    pieces = tokenizer().tokenize("x = 314159")
    assert [piece for piece in pieces if piece.strip("Ġ").isdigit()] == list("314159")


def test_any_bytes_come_back():
    for each in (text(3), "Grüße, 世界 \t\n\x00 🙂"):
        assert tokenizer().decode(tokenizer().encode(each)) == each


def test_a_vocabulary_without_room_for_pieces():
    with pytest.raises(InvalidValue, match="above 257"):
        tokenizer(257)


def test_a_document_is_its_text_and_the_end(tmp_path):
    corpus = tokens(tmp_path, count=40)
    texts = {tuple(tokenizer().encode(text(n))) for n in range(40)}
    for n in range(len(corpus)):
        *told, end = corpus[n].tolist()
        assert tuple(told) in texts
        assert end == tokenizer().eos_token_id
        assert corpus.lengths[n] == len(told) + 1
