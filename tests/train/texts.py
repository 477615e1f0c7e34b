"""Small corpora and tokenizers for the lab's tests."""

from functools import cache
from random import Random

from ropewalk.train.data.packs import train_tokenizer
from ropewalk.train.data.tokens import tokenise

WORDS = "the of rope long short walk turns key value text reads far near model window bias scale a in to".split()  # noqa: SIM905


def text(seed, words=120):
    random = Random(seed)
    return " ".join(random.choices(WORDS, k=words)) + f" {random.randrange(10**6)}\n"


def folder_of(path, count=40, words=120, first=0):
    """A folder with so many text files; those of another `first` have other words."""
    path.mkdir(parents=True, exist_ok=True)
    for n in range(count):
        (path / f"{n:03}.txt").write_text(text(first + n, words))
    return f"folder:{path}"


@cache
def tokenizer(size=300):
    return train_tokenizer([text(n) for n in range(40)], size=size)


def tokens(path, split="train", **sizes):
    return tokenise(folder_of(path / "texts", **sizes), split, tokenizer(), path / "cache")
