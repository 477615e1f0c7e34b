"""Over how many keys the models of the zoo spread their attention, by the number of keys."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from ropewalk import extended
from ropewalk.measure.diagnostics.attention_weights import entropy

TIMES = 8  # trained lengths of a text
ROWS = 8  # query rows in each trained length
TEXTS = 16  # of the held-out ones


def entropies(model: PreTrainedModel, extension: str, held_out: Tensor, trained_len: int) -> dict[str, Any]:
    """The mean entropy over heads and layers, in nats, by the position of the query: [text, row]."""
    texts = held_out[:TEXTS, -TIMES * trained_len :]
    with extended(model, extension or "rope", target_len=TIMES * trained_len, mode="attention"):
        measured = [entropy(model, text[None], rows=TIMES * ROWS) for text in texts]
    means = [[round(sum(row) / len(row), 5) for row in zip(*one.layers, strict=True)] for one in measured]
    return {"keys": [at + 1 for at in measured[0].at], "texts": means}
