"""A tiny model with its tokenizer, to be measured."""

from functools import cache

from ropewalk.measure.material.subject import Subject
from ropewalk.train.small_models import ModelShape, new_small_model

from train.texts import folder_of, tokenizer

TRAINED = 32


@cache
def model():
    """With weights large enough for attention to matter."""
    made = new_small_model(
        ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=TRAINED)
    ).eval()
    for name, value in made.named_parameters():
        if "proj" in name:
            value.data *= 10
    return made


def subject(path, longest=64, model_=None, **sizes):
    sizes = {"count": 120, **sizes}
    source = folder_of(path / "texts", **sizes)
    return Subject(model=model_ or model(), tokenizer=tokenizer(), corpus=source, longest=longest)
