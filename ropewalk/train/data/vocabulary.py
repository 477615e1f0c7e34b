"""A byte-level BPE vocabulary without unknown tokens; every digit is a token, and one token ends a text."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ropewalk.errors import InvalidValue

END = "<|end|>"
BYTES = 256


def train_tokenizer(texts: Iterable[str], *, size: int = 2048) -> PreTrainedTokenizerFast:
    """A tokenizer of transformers with `size` tokens, trained on some texts."""
    if size <= BYTES + 1:
        raise InvalidValue("vocabulary", f"above {BYTES + 1}, the bytes and the end of a text", size)
    bpe = Tokenizer(models.BPE())
    # Numbers are split into digits, so that no number is a token that training has never seen.
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )
