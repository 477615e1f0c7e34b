"""What the logits of a model are made of, by distance: the products of contents and of biases on queries and keys."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from ropewalk import extended
from ropewalk.measure.diagnostics.pass_states import bias_terms, distance_bins

TERMS = ("both contents", "bias and key", "query and bias", "both biases")
TEXTS = 16  # of the held-out ones; the terms differ little between texts


def logit_terms(model: PreTrainedModel, held_out: Tensor, trained_len: int) -> dict[str, Any]:
    """Each term's mean by distance up to twice the trained length: [text, term, layer, bin of distances]."""
    texts, bins = held_out[:TEXTS, -2 * trained_len :], distance_bins(2 * trained_len)
    with extended(model, "rope", mode="attention"):
        measured = [bias_terms(model, text[None]) for text in texts]
    rounded = [[[_rounded(layer) for layer in term.layers] for term in terms] for terms in measured]
    return {
        "trained_len": trained_len,
        "distances": list(measured[0].both.at),  # the mean of each bin
        "counts": bins.bincount().tolist(),  # of distances in each bin
        "texts": rounded,
    }


def _rounded(curve: tuple[float, ...]) -> list[float]:
    return [round(value, 5) for value in curve]
