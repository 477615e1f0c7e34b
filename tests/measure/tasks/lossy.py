"""A model that forgets what is far."""

from copy import deepcopy

from tokenizers import normalizers

from train.texts import tokenizer


def lossy():
    """A tokenizer that forgets capitals."""
    made = deepcopy(tokenizer())
    made.backend_tokenizer.normalizer = normalizers.Lowercase()
    return made
