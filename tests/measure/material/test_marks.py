"""Hashes of a model: of every entry of its weights, whatever its shape."""

from copy import deepcopy

import pytest
import torch

from ropewalk.measure.material.subject import marks_of

from measure.subjects import model
from train.texts import tokenizer


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_every_entry_of_the_weights_counts(shape, dtype):
    """Apertus has scales without a dimension."""
    made = deepcopy(model())
    made.register_buffer("scale", torch.ones(shape, dtype=dtype))
    before = marks_of(made, tokenizer())
    made.scale.zero_()
    assert (before["weights"] == marks_of(made, tokenizer())["weights"]) == (made.scale.numel() == 0)
    assert before["weights"] != marks_of(model(), tokenizer())["weights"]
