"""Text as it grows is the text."""

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from ropewalk.cli.growing_text import INCOMPLETE, pieces


@pytest.fixture(scope="module")
def tokenizer():
    """One token a byte."""
    own = Tokenizer(BPE({byte: n for n, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    own.pre_tokenizer, own.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=own)


@pytest.mark.parametrize(
    "text", ["plain", "naïve 中文 🪢 end", "two\n  indented\n\nlines\n", "é" * 200, "a" * 63 + "中" * 9]
)
def test_characters_come_whole(tokenizer, text):
    shown = list(pieces(tokenizer, tokenizer(text)["input_ids"]))
    assert "".join(shown) == text
    assert not any(INCOMPLETE in piece for piece in shown)
    assert len([piece for piece in shown if piece]) == len(text)


def test_half_a_character_at_the_end_is_shown_for_what_it_is(tokenizer):
    assert "".join(pieces(tokenizer, tokenizer("a中")["input_ids"][:-1])) == f"a{INCOMPLETE}"


def test_a_line_is_not_decoded_from_its_beginning_for_ever(tokenizer, monkeypatch):
    lengths, decode = [], tokenizer.decode
    monkeypatch.setattr(tokenizer, "decode", lambda ids, **given: lengths.append(len(ids)) or decode(ids, **given))
    list(pieces(tokenizer, tokenizer("word " * 300)["input_ids"]))
    assert max(lengths) <= 64
