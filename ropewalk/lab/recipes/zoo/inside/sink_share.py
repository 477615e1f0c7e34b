"""How much attention goes to the token that every text of a model begins with, and what its source says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.evaluation.diagnostics import mass_of_first
from ropewalk.evaluation.metrics.intervals import crossed
from ropewalk.hf import extended
from ropewalk.lab.claims import NOT_MEASURED, ONE_SEED, Claim, JudgedClaim, Unit, judge

TEXTS = 16  # of the held-out ones
ROWS = 16  # of a text; the last half counts
BOTTOM = 2  # layers that the source leaves out
PERCENT = Unit("percent of attention", 100, 1)
AXES = ("layer", "attention on the first token, percent")
CLAIM = Claim(
    "sink-appears",
    "Where texts begin with a marker, it becomes a sink: beyond the first two layers it gets at least a tenth of the "
    "attention.",
    "arXiv:2309.17453",
    (("attention on the first token beyond the first two layers",),),
    0.1,
    "heavily attended in nearly all layers and heads beyond the bottom two",
)


def sink_share(model: PreTrainedModel, held_out: Tensor, trained_len: int) -> list[list[float]]:
    """The mean share over heads and the last half of the queries, [text, layer], in texts of the trained length."""
    texts = held_out[:TEXTS, -trained_len:].clone()
    texts[:, 0] = int(model.config.eos_token_id)
    with extended(model, "rope", mode="attention"):
        measured = [mass_of_first(model, text[None], keys=1, rows=ROWS) for text in texts]
    return [[_last_half(layer) for layer in one.layers] for one in measured]


def _last_half(layer: Sequence[float]) -> float:
    half = layer[len(layer) // 2 :]
    return round(sum(half) / len(half), 5)


def sink_verdicts(models: Sequence[Mapping[str, Any]]) -> list[JudgedClaim]:
    """What the models say whose share was measured."""
    shares = [model["sink"] for model in models if "sink" in model]
    if len(shares) < 2:
        return [JudgedClaim(claim=CLAIM, word=ONE_SEED if shares else NOT_MEASURED, unit=PERCENT)]
    beyond = [[sum(text[BOTTOM:]) / len(text[BOTTOM:]) for text in of_seed] for of_seed in shares]
    layers = range(len(shares[0][0]))
    curve = [(n + 1, crossed([[text[n] for text in of_seed] for of_seed in shares])) for n in layers]
    return [judge(CLAIM, [crossed(beyond)], PERCENT, AXES, {"marked": curve})]
