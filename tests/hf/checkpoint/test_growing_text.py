"""Text as it grows is the text."""

import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from ropewalk.hf.checkpoint.tokens import INCOMPLETE, MOST_DECODED, GrowingText


@pytest.fixture(scope="module")
def tokenizer():
    """One token a byte."""
    own = Tokenizer(BPE({byte: n for n, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    own.pre_tokenizer, own.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=own)


@pytest.fixture(scope="module")
def byte_fallback():
    """Bytes where a character has no token, as in Llama 2: a run of bytes is text only where all of it is."""
    vocab = (
        {"<unk>": 0} | {f"<0x{byte:02X}>": byte + 1 for byte in range(256)} | {"\u2581": 257, "a": 258, "\u2581a": 259}
    )
    own = Tokenizer(BPE(vocab, [("\u2581", "a")], unk_token="<unk>", byte_fallback=True))
    own.normalizer = normalizers.Replace(" ", "\u2581")
    own.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=own)


def pieces(tokenizer, tokens):
    text = GrowingText(tokenizer)
    return [*(text.push(token) for token in tokens), text.rest()]


@pytest.mark.parametrize(
    "text", ["plain", "naïve 中文 🪢 end", "two\n  indented\n\nlines\n", "é" * 200, "a" * 63 + "中" * 9]
)
def test_characters_come_whole(tokenizer, text):
    shown = pieces(tokenizer, tokenizer(text)["input_ids"])
    assert "".join(shown) == text
    assert not any(INCOMPLETE in piece for piece in shown)
    assert len([piece for piece in shown if piece]) == len(text)


def test_half_a_character_at_the_end_is_shown_for_what_it_is(tokenizer):
    assert "".join(pieces(tokenizer, tokenizer("a中")["input_ids"][:-1])) == f"a{INCOMPLETE}"


def test_a_line_is_not_decoded_from_its_beginning_for_ever(tokenizer, monkeypatch):
    lengths, decode = [], tokenizer.decode
    monkeypatch.setattr(tokenizer, "decode", lambda ids, **given: lengths.append(len(ids)) or decode(ids, **given))
    pieces(tokenizer, tokenizer("word " * 300)["input_ids"])
    assert max(lengths) <= MOST_DECODED


@settings(max_examples=100, deadline=None)
@given(st.text("a é中🪢", max_size=40))
def test_runs_of_bytes_are_text(byte_fallback, text):
    ids = byte_fallback(text)["input_ids"]
    assert "".join(pieces(byte_fallback, ids)) == byte_fallback.decode(ids)


def test_bytes_that_never_become_a_character_do_not_wait_for_ever(tokenizer, monkeypatch):
    lengths, decode = [], tokenizer.decode
    monkeypatch.setattr(tokenizer, "decode", lambda ids, **given: lengths.append(len(ids)) or decode(ids, **given))
    shown = pieces(tokenizer, tokenizer("é")["input_ids"][1:] * 500)
    assert "".join(shown) == INCOMPLETE * 500
    assert max(lengths) <= MOST_DECODED
    assert len([piece for piece in shown if piece]) > 50
