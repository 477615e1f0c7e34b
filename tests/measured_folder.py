"""A small model in a folder, with its tokenizer, beside texts."""

import pytest

from ropewalk.train.small_models import ModelShape, new_small_model

from train.texts import folder_of, tokenizer

TRAINED = 32


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("measured")
    model = new_small_model(ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=TRAINED))
    for name, value in model.named_parameters():
        if "proj" in name:
            value.data *= 10  # attention that matters
    model.save_pretrained(path / "model")
    tokenizer().save_pretrained(path / "model")
    folder_of(path / "texts", count=120, words=200)
    return path


@pytest.fixture
def corpus(place):
    return f"folder:{place / 'texts'}"
