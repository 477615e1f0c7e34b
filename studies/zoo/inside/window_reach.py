"""From how far a token of a model with windows is reached through all of its layers, and what its source says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.claims import NOT_MEASURED, ONE_SEED, Claim, JudgedClaim, Unit, judge

TEXTS = 16  # of the held-out ones
PERCENT = Unit("percent of layers times window", 100, 1)
AXES = ("seed", "reach, percent of layers times window")
CLAIM = Claim(
    "window-reach",
    "Windows of several layers together reach about as far as layers times window: at least nine tenths of it.",
    "arXiv:2310.06825",
    (("tokens that reach the last one, over layers times window",),),
    0.9,
    "4,096 tokens and 32 layers: about 131,000",
    "By construction: layers times (window - 1), and 1. Nine tenths is our bound. Whether a model uses so long a path "
    "is another question.",
)


def window_reach(model: PreTrainedModel, held_out: Tensor, window: int, layers: int) -> dict[str, Any]:
    """How many tokens change the last prediction of each text, itself included: those with a gradient."""
    texts = held_out[:TEXTS, -(layers * window + window) :]
    embedded = model.get_input_embeddings()(texts).detach().requires_grad_()
    model(inputs_embeds=embedded, use_cache=False).logits[:, -1].square().sum().backward()
    seen_bn = _gradient(embedded).abs().amax(-1) > 0
    first = seen_bn.int().argmax(1)
    return {"window": window, "layers": layers, "tokens": (seen_bn.shape[1] - first).tolist()}


def _gradient(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.grad is None else x.grad


def reach_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say whose reach was measured."""
    shares = {model["seed"]: _shares(model["reach"]) for model in models if "reach" in model}
    if len(shares) < 2:
        return [JudgedClaim(claim=CLAIM, reason=ONE_SEED if shares else NOT_MEASURED, unit=PERCENT)]
    groups = projects[:TEXTS] or None
    curve = [(seed, crossed_mean([of_texts], groups=groups)) for seed, of_texts in sorted(shares.items())]

    def reached(terms: Sequence[str], level: float) -> Estimate:
        return crossed_mean(list(shares.values()), groups=groups, level=level)

    return [judge(CLAIM, reached, PERCENT, AXES, {"window": curve}, drawn=f"{len(shares)} seeds")]


def _shares(reach: Mapping[str, Any]) -> list[float]:
    return [tokens / (reach["layers"] * reach["window"]) for tokens in reach["tokens"]]
