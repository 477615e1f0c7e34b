"""Losses and hits of texts, against the model's own logits; which texts are read."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk.errors import DoesNotFit
from ropewalk.measure.metrics import losses
from ropewalk.measure.metrics.losses import (
    TokenLosses,
    bin_means,
    bits_per_byte,
    passages,
    repeat_texts,
    text_bytes,
    token_losses,
)
from ropewalk.methods.positions import Randomized
from ropewalk.texts.corpora import Document

from hf.models import tiny
from hf.traces import logits
from train.texts import text, tokenizer

IDS = torch.randint(3, 97, (5, 40), generator=torch.Generator().manual_seed(5))


def test_every_text_is_read_whatever_is_read_at_once(monkeypatch):
    model = tiny("llama", num_hidden_layers=2)
    whole = logits(model, IDS)[:, :-1]
    expected = cross_entropy(whole.transpose(1, 2), IDS[:, 1:], reduction="none")
    for rows in (20, 80, 8192):  # one text at a time, two, all
        monkeypatch.setattr(losses, "TOKENS_PER_BATCH", rows)
        got = token_losses(model, IDS)
        torch.testing.assert_close(got.losses_bn, expected, rtol=1e-3, atol=1e-3)
        assert torch.equal(got.hits_bn, whole.argmax(-1) == IDS[:, 1:])


def test_figures_are_means_over_all_tokens_or_the_last():
    got = TokenLosses(torch.tensor([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]), torch.tensor([[True, True, False], [True] * 3]))
    assert got.loss() == 4
    assert got.loss(last=1) == 5
    assert got.accuracy() == pytest.approx(5 / 6)
    assert got.accuracy(last=2) == 0.75


def test_a_numbering_is_the_one_without_chance():
    """gpt2 has a table of learned positions, and transformers would take a gap between two for a new text."""
    torch.manual_seed(0)
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=101, n_positions=100, n_embd=32, n_layer=2, n_head=2)).eval()
    model.transformer.wpe.weight.data.normal_()
    got = token_losses(model, IDS, numbering=Randomized(limit=100))
    places = torch.arange(40) * 100 // 40
    whole = logits(model, IDS, position_ids=places[None], attention_mask=torch.ones_like(IDS))
    expected = cross_entropy(whole[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(got.losses_bn, expected, rtol=1e-3, atol=1e-3)


def test_passages_are_the_middles_of_documents_that_are_long_enough():
    documents = [Document(str(n), text(n, words)) for n, words in enumerate((200, 3, 200, 200))]
    got = passages(documents, tokenizer(), length=50, count=2)
    assert got.ids_bn.shape == (2, 50)
    for row, document in zip(got.ids_bn, (documents[0], documents[2]), strict=True):
        tokens = tokenizer().encode(document.text)
        assert tokens[(len(tokens) - 50) // 2 :][:50] == row.tolist()
    with pytest.raises(DoesNotFit, match="4 documents of 50 tokens, got '3 of them'"):
        passages(documents, tokenizer(), length=50, count=4)


def test_passages_are_of_many_projects():
    names = ["stdlib/json/a.py", "stdlib/json/b.py", "purelib/one/a.py", "stdlib/json/c.py", "purelib/two.py"]
    documents = [Document(name, text(n, 200)) for n, name in enumerate(names)]
    got = passages(documents, tokenizer(), length=50, count=4)
    assert got.projects == ("stdlib/json", "purelib/one", "purelib/two", "stdlib/json")
    alone = [passages([documents[n]], tokenizer(), length=50, count=1).ids_bn for n in (0, 2, 4, 1)]
    assert torch.equal(got.ids_bn, torch.cat(alone))


def test_repeating():
    assert repeat_texts(torch.tensor([[1, 2, 3]]), 7).tolist() == [[1, 2, 3, 1, 2, 3, 1]]


def test_bins_are_means_of_all_there_is():
    got = bin_means(torch.arange(1000.0))
    assert len(got) == 64
    assert sum(got) / 64 == pytest.approx(499.5, rel=1e-2)
    assert bin_means(torch.tensor([1.0, 3.0])) == [1.0, 3.0]


def test_bits_per_byte_by_hand():
    """Two tokens of a loss of one bit and one of two, over 8 bytes of which two are one character."""
    bit = 0.6931471805599453
    assert text_bytes(tokenizer(), torch.tensor(tokenizer().encode("the rop\u00e9"))) == 9
    assert bits_per_byte(torch.tensor([bit, bit, 2 * bit]), 8) == pytest.approx(0.5)
