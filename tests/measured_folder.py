"""A small model in a folder, with its tokenizer, beside texts."""

import pytest

from ropewalk.train.small_models import ModelShape, new_small_model

from train.texts import folder_of, tokenizer

TRAINED = 32


def small_folder(path, *, times=1, texts=120, words=200, **shape):
    """The folder, with a model whose attention matters more, the larger `times` is."""
    shape = {"vocabulary": 300, "width": 32, "inner": 64, "layers": 2, "heads": 2, "trained_len": TRAINED, **shape}
    model = new_small_model(ModelShape(**shape))
    for name, value in model.named_parameters():
        if "proj" in name:
            value.data *= times
    model.save_pretrained(path / "model")
    tokenizer().save_pretrained(path / "model")
    folder_of(path / "texts", count=texts, words=words)
    return path


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return small_folder(tmp_path_factory.mktemp("measured"), times=10)


@pytest.fixture
def corpus(place):
    return f"folder:{place / 'texts'}"
