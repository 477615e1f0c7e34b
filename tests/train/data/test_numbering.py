"""Rows numbered for training: text by text, the same each time, and heard by every kind of model."""

import pytest
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.positions import PoSE, Randomized, Sequential
from ropewalk.train.data.numbering import Collator, NumberedRows, number_rows, texts_of
from ropewalk.train.data.packs import PackedRows, collate_items, row_of
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train

from hf.models import tiny
from train.texts import tokenizer, tokens
from train.watching import StopAt, losses

LIMIT = 200
QUIET = {"rows": 4, "save_every": 4, "log_every": 1, "progress": False}


class Rows(Dataset):
    """Rows of texts of these lengths."""

    def __init__(self, *lengths):
        self.lengths = lengths

    def __len__(self):
        return 50

    def __getitem__(self, index):
        ids = torch.arange(sum(self.lengths)) * (index + 3) % 97
        return row_of([text.numpy() for text in ids.split(list(self.lengths))])


def gpt2():
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": LIMIT, "vocab_size": 300, "initializer_range": 0.3}
    return GPT2LMHeadModel(GPT2Config(**shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


@pytest.mark.parametrize("positions", [Randomized(limit=LIMIT), PoSE(target_len=LIMIT)])
def test_each_text_is_numbered_on_its_own(positions):
    rows = NumberedRows(Rows(7, 20, 1, 12), positions)
    firsts = set()
    for n in range(len(rows)):
        numbers, documents = rows[n]["position_ids"], rows[n]["documents"]
        assert torch.unique_consecutive(documents, return_counts=True)[1].tolist() == [7, 20, 1, 12]
        for text in numbers.split([7, 20, 1, 12]):
            assert text.min() >= 0
            assert text.max() < LIMIT
            assert (text.diff() > 0).all()
        firsts.add(int(numbers[7]))
        assert torch.equal(rows[n]["labels"] == -100, Rows(7, 20, 1, 12)[n]["position_ids"] == 0)
    assert len(firsts) > 8 if isinstance(positions, Randomized) else firsts == {0}


def test_numbers_cover_the_range_evenly():
    """The k-th of n numbers drawn from 0 .. limit-1 has the mean (k+1)(limit+1)/(n+1) - 1."""
    rows = NumberedRows(Rows(9), Randomized(limit=LIMIT))
    drawn = torch.stack([rows[n % 50]["position_ids"] for n in range(50)]).double()
    more = NumberedRows(Rows(9), Randomized(limit=LIMIT), seed=5)
    drawn = torch.cat([drawn, torch.stack([more[n]["position_ids"] for n in range(50)]).double()])
    expected = torch.arange(1, 10) * (LIMIT + 1) / 10 - 1
    assert (drawn.mean(0) - expected).abs().max() < 4 * 30 / 10  # four standard errors; a number's deviation is <= 30


def test_a_row_depends_on_the_seed_and_its_number_alone():
    first, again, other = (NumberedRows(Rows(9, 9), Randomized(limit=LIMIT), seed=seed) for seed in (1, 1, 2))
    for n in (30, 2, 11):
        assert torch.equal(first[n]["position_ids"], again[n]["position_ids"])
        assert not torch.equal(first[n]["position_ids"], other[n]["position_ids"])
    assert not torch.equal(first[2]["position_ids"], first[3]["position_ids"])


def test_as_numbered_after_training():
    row = NumberedRows(Rows(4, 10), Randomized(limit=LIMIT), seed=None)[0]
    assert row["position_ids"].tolist() == [0, 50, 100, 150, *range(0, LIMIT, 20)]


def test_rows_that_are_numbered_stay():
    once = NumberedRows(Rows(9, 9), Randomized(limit=LIMIT), seed=1)
    assert torch.equal(NumberedRows(once, PoSE(target_len=500))[4]["position_ids"], once[4]["position_ids"])


def test_sequential_numbers_are_what_they_were():
    rows = NumberedRows(Rows(9, 5), Sequential())
    assert torch.equal(rows[3]["position_ids"], Rows(9, 5)[3]["position_ids"])


def test_a_text_longer_than_the_range():
    with pytest.raises(InvalidValue, match=r"at most limit \(8\)"):
        NumberedRows(Rows(9), Randomized(limit=8))[0]


def apart(model, batch):
    """Each text of each row as its own forward, with its numbers."""
    out = torch.empty(*batch["input_ids"].shape, model.config.vocab_size)
    for b, documents in enumerate(batch["documents"]):
        for text in documents.unique():
            own = documents == text
            ids, numbers = batch["input_ids"][b, own][None], batch["position_ids"][b, own][None]
            ones = torch.ones_like(ids)
            out[b, own] = model(input_ids=ids, position_ids=numbers, attention_mask=ones, use_cache=False).logits[0]
    return out


def together(model, rows):
    batch = Collator(model)([rows[0], rows[1], rows[5]])
    assert ("documents" in batch) == (model.config._attn_implementation == "ropewalk" and "documents" in rows[0])
    return model(**{name: value for name, value in batch.items() if name != "labels"}, use_cache=False).logits


@pytest.mark.parametrize("make", [gpt2, lambda: tiny("llama", "sdpa"), lambda: tiny("llama", "eager")])
@pytest.mark.parametrize("lengths", [(7, 20, 1, 12), (40,)])
def test_packed_texts_are_read_as_if_apart(make, lengths):
    model, rows = make().eval(), NumberedRows(Rows(*lengths), Randomized(limit=LIMIT))
    got = together(model, rows)
    torch.testing.assert_close(got, apart(model, collate_items([rows[0], rows[1], rows[5]])), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got, together(model, Rows(*lengths)), atol=1e-2)  # the numbers matter


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_row_of_one_text_beside_a_row_of_several(attention):
    model = tiny("llama", attention)
    items = [NumberedRows(Rows(*lengths), Randomized(limit=LIMIT))[2] for lengths in ((40,), (7, 20, 1, 12))]
    batch = Collator(model)(items)
    got = model(**{name: value for name, value in batch.items() if name != "labels"}, use_cache=False).logits
    torch.testing.assert_close(got, apart(model, collate_items(items)), rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("extension", ["alibi", "window:window=30", "log_n", "yarn:factor=4"])
def test_packed_texts_under_an_extension(extension):
    """A text that begins above the last number of the one before is another text all the same."""
    rows = NumberedRows(Rows(20, 1, 1, 2, 12), Randomized(limit=LIMIT))
    assert any((rows[n]["position_ids"].diff() > 0)[[19, 20, 21, 23]].any() for n in (0, 1, 5))
    model = tiny("llama")
    with rw.extended(model, extension):
        got = together(model, rows)
        expected = apart(model, collate_items([rows[0], rows[1], rows[5]]))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_packed_texts_in_a_model_with_windows_of_its_own():
    rows = NumberedRows(Rows(7, 20), Randomized(limit=LIMIT))
    with pytest.raises(DoesNotFit, match="sdpa or eager without windows"):
        Collator(tiny("mistral"))([rows[0]])
    assert Collator(tiny("mistral"))([NumberedRows(Rows(27), PoSE(target_len=99))[0]])["attention_mask"].all()


def test_texts_are_told_by_their_beginnings():
    assert texts_of(torch.tensor([0, 1, 2, 0, 0, 1])).tolist() == [1, 1, 1, 2, 3, 3]


def test_an_extension_with_positions_has_its_rows_numbered():
    model, rows = tiny("llama"), Rows(9, 9)
    assert number_rows(model, rows, seed=0) is rows
    with rw.extended(model, "randomized:limit=200"):
        got = number_rows(model, rows, seed=3)[4]["position_ids"]
    assert torch.equal(got, NumberedRows(rows, Randomized(limit=200), seed=3)[4]["position_ids"])


SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)


def learning(path, make, name, steps, **more):
    rows = PackedRows(tokens(path, count=20), tokenizer(), length=32, count=400)
    return train(
        make(), NumberedRows(rows, Randomized(limit=LIMIT)), TrainingPlan(steps=steps, **QUIET), path / name, **more
    )


@pytest.mark.nightly
@pytest.mark.parametrize("make", [gpt2, lambda: new_small_model(SMALL)], ids=["learned", "rotary"])
def test_training_goes_on_with_the_same_numbers(tmp_path, make):
    whole = losses(learning(tmp_path, make, "whole", 8))
    learning(tmp_path, make, "cut", 8, callbacks=[StopAt(5)])
    assert losses(learning(tmp_path, make, "cut", 8)) == whole
    assert sum(whole[-2:]) < sum(whole[:2])
