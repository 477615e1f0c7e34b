"""A byte-level BPE vocabulary: nothing is unknown to it, digits stand alone, and one token ends a text."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ropewalk.errors import InvalidValue

END = "<|end|>"
BYTES = 256


def learned(texts: Iterable[str], *, size: int = 2048) -> PreTrainedTokenizerFast:
    """The `size` most useful pieces of some texts, as a tokenizer of transformers."""
    if size <= BYTES + 1:
        raise InvalidValue("vocabulary", f"above {BYTES + 1}, the bytes and the end of a text", size)
    pieces = Tokenizer(models.BPE())
    # A number is read digit by digit, so that no number is a token of its own that training has never seen.
    pieces.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    pieces.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=pieces, bos_token=END, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )
