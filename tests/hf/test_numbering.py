"""How a forward in training is numbered where nobody numbers it, and by whoever does."""

import pytest
import torch
from transformers import DynamicCache

import ropewalk as rw
from ropewalk.errors import InvalidValue
from ropewalk.hf.runtime.forward_pass import make_pass

from hf.models import tiny

LIMIT = 300
RULE = rw.parse(f"randomized:limit={LIMIT}").positions


def ids(*shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape) * 7 % 101


def drawn(**given):
    return make_pass(given, [None, None], random=RULE)


def test_every_row_is_drawn_anew_from_torchs_generator():
    torch.manual_seed(3)
    first, then = drawn(input_ids=ids(2, 20)).numbers_bj, drawn(input_ids=ids(2, 20)).numbers_bj
    torch.manual_seed(3)
    assert torch.equal(drawn(input_ids=ids(2, 20)).numbers_bj, first)
    assert not torch.equal(first, then)
    assert not torch.equal(first[0], first[1])
    assert (first.diff() > 0).all()
    assert first.min() >= 0
    assert first.max() < LIMIT


def test_packed_texts_are_drawn_one_by_one():
    positions = torch.cat([torch.arange(12), torch.arange(8)])[None]
    got = drawn(input_ids=ids(1, 20), position_ids=positions)
    assert got.documents_bj.unique_consecutive(return_counts=True)[1].tolist() == [12, 8]
    assert (got.numbers_bj[0, :12].diff() > 0).all()
    assert (got.numbers_bj[0, 12:].diff() > 0).all()
    assert got.numbers_bj.max() > 100


def test_padding_stays_padding():
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[1, :5] = 0
    got = drawn(input_ids=ids(2, 20), attention_mask=mask).numbers_bj
    assert (got[1, :5] == -1).all()
    assert (got[1, 5:].diff() > 0).all()
    assert (got[0] >= 0).all()


def test_numbers_that_were_given_stay():
    positions = torch.arange(20)[None] * 3
    assert torch.equal(drawn(input_ids=ids(1, 20), position_ids=positions).numbers_bj, positions)


def test_training_sees_them_and_evaluation_does_not():
    model = tiny("llama")
    bare = model(ids(1, 20)).logits
    with rw.extended(model, f"randomized:limit={LIMIT}"):
        torch.testing.assert_close(model(ids(1, 20)).logits, bare, rtol=0, atol=1e-4)
        model.train()
        assert not torch.allclose(model(ids(1, 20)).logits, bare, atol=1e-2)


def test_documents_are_heard():
    model = tiny("llama")
    numbers = torch.tensor([[3, 9, 20, 21, 40, 41]])
    documents = torch.tensor([[1, 1, 1, 2, 2, 2]])
    with rw.extended(model, "alibi"):
        got = model(ids(1, 6), position_ids=numbers, documents=documents, use_cache=False).logits
        for part in (slice(0, 3), slice(3, 6)):
            alone = model(ids(1, 6)[:, part], position_ids=numbers[:, part], use_cache=False).logits
            torch.testing.assert_close(got[:, part], alone, rtol=1e-4, atol=1e-4)
        with pytest.raises(InvalidValue, match="goes with position_ids and without a cache"):
            model(ids(1, 6), documents=documents, use_cache=False)
        with pytest.raises(InvalidValue, match="goes with position_ids and without a cache"):
            model(ids(1, 6), position_ids=numbers, documents=documents, past_key_values=DynamicCache())
