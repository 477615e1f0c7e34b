"""How well hidden states tell the absolute position, which nothing in the model encodes, and what its source says.

A linear map from the states after the first layer, or after the middle one, to the position is fitted on half of the
texts. Its error is measured on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.hf.attach.handle import host_of

from studies.claims import Claim, JudgedClaim, Unit
from studies.zoo.inside.by_seed import BySeed, Curve

TOKENS = Unit("tokens", digits=2)
AXES = ("position", "error of the position, tokens")
SOURCE = "arXiv:2308.16137"
FIRST, MIDDLE = "first", "middle"
Errors = Mapping[str, list[list[float]]]  # by layer: [text, position]


class ErrorTerm(NamedTuple):
    """The mean error in a part of the positions, in a sum; or the error of always guessing the middle."""

    weight: float
    method: str
    layer: str
    part: tuple[float, float] = (0, 1)  # of the trained length
    guessed: bool = False

    def __str__(self) -> str:
        """Without its weight."""
        if self.guessed:
            return "the error of always guessing the middle"
        first, last = self.part
        part = f", {first:g} to {last:g}" if self.part != (0, 1) else ""
        return f"error of the position in {self.label}{part}"

    @property
    def label(self) -> str:
        """Of its curve."""
        return f"{self.method} after the {self.layer} layer"


def _below_half(method: str, layer: str) -> tuple[ErrorTerm, ...]:
    return ErrorTerm(1 / 2, method, layer, guessed=True), ErrorTerm(-1, method, layer)


CLAIMS = (
    Claim(
        "position-implicit",
        "A model without positions encodes the absolute position: after its middle layer the error of a linear map is "
        "at most half of the error of always guessing the middle.",
        SOURCE,
        (_below_half("nope", MIDDLE),),
    ),
    Claim(
        "position-first-layer",
        "The first layer of a model with rotation encodes the absolute position: the error of a linear map is at most "
        "half of the error of always guessing the middle.",
        SOURCE,
        (_below_half("rope", FIRST),),
        theirs="a picture of two principal components",
    ),
    Claim(
        "late-positions-blur",
        "Late tokens can hardly be told apart by position: after the middle layer of a model without positions the "
        "error is larger in the last quarter of the trained length than in the first.",
        SOURCE,
        ((ErrorTerm(1, "nope", MIDDLE, (0.75, 1)), ErrorTerm(-1, "nope", MIDDLE, (0, 0.25))),),
        theirs="a picture of the first layer of LLaMA, with rotation",
    ),
    Claim(
        "late-positions-first-layer",
        "Late tokens can hardly be told apart after the first layer of a model with rotation: the error is larger in "
        "the last quarter of the trained length than in the first.",
        SOURCE,
        ((ErrorTerm(1, "rope", FIRST, (0.75, 1)), ErrorTerm(-1, "rope", FIRST, (0, 0.25))),),
        theirs="a picture of the first layer of LLaMA",
    ),
)


def position_errors(model: PreTrainedModel, held_out: Tensor, trained_len: int) -> Errors:
    """How many tokens the maps are off, for every position of the texts that they were not fitted on."""
    host: Any = host_of(model)
    with torch.no_grad():
        texts = {"input_ids": held_out[:, :trained_len], "use_cache": False, "output_hidden_states": True}
        states = host.base_model(**texts).hidden_states
    return {FIRST: _errors(states[1]), MIDDLE: _errors(states[len(states) // 2])}


def _errors(states_bnd: Tensor) -> list[list[float]]:
    """Of a map that is fitted on the first half of the texts."""
    states_bnd = torch.cat([states_bnd, torch.ones_like(states_bnd[..., :1])], dim=-1).double()
    trained_len = states_bnd.shape[1]
    places_bn = torch.arange(trained_len, dtype=torch.float64).expand(states_bnd.shape[:2])
    half = len(states_bnd) // 2
    weights = torch.linalg.lstsq(states_bnd[:half].flatten(0, 1), places_bn[:half].reshape(-1, 1), driver="gelsd")
    errors_bn = ((states_bnd[half:] @ weights.solution)[..., 0] - places_bn[half:]).abs()
    return [[round(error, 4) for error in text] for text in errors_bn.tolist()]


def position_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say whose errors were measured."""
    tested = projects[len(projects) // 2 :]
    measured: BySeed[ErrorTerm, Errors] = BySeed(
        models, "state_positions", lambda stored: stored, _mean, _curve, projects=tested, least=0
    )
    return [measured.verdict(claim, TOKENS, AXES) for claim in CLAIMS]


def _mean(term: ErrorTerm, errors: Errors) -> list[float]:
    """For each text."""
    texts = errors[term.layer]
    length = len(texts[0])
    if term.guessed:
        middle = (length - 1) / 2
        return [sum(abs(place - middle) for place in range(length)) / length] * len(texts)
    first, last = (round(share * length) for share in term.part)
    return [sum(text[first:last]) / (last - first) for text in texts]


def _curve(term: ErrorTerm, errors: Errors) -> Curve:
    texts = errors[term.layer]
    return {place: [text[place] for text in texts] for place in range(len(texts[0]))}
