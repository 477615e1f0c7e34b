"""The angle between queries or keys and the bias of the other side, and what the source of these biases says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedModel

from ropewalk import extended
from ropewalk.hf.attach.attention import CapturedLayer, capture_biases, capture_layers

from studies.claims import Claim, JudgedClaim, Unit
from studies.zoo.inside.by_seed import BySeed, Curve

TEXTS = 16  # of the held-out ones
SIDES = ("queries and the key bias", "keys and the query bias")
COSINE = Unit("of the cosine")
AXES = ("layer", "size of the mean cosine")
Cosines = list[list[list[float]]]  # [text, layer, side]


class CosineTerm(NamedTuple):
    """The cosine of one side, in a sum."""

    weight: float
    side: str
    method: str = "qk_bias"

    def __str__(self) -> str:
        """Without its weight."""
        return f"size of the mean cosine of {self.side}"

    @property
    def label(self) -> str:
        """Of its curve."""
        return self.side


CLAIM = Claim(
    "qk-bias-right-angles",
    "The angle between a query or key and the fixed bias of the other side is nearly a right one: the size of its mean "
    "cosine is at most 0.1.",
    "kexue.fm/9577",
    tuple((CosineTerm(-1, side),) for side in SIDES),
    -0.1,
    "an expectation of 0, 'very close' to 90 degrees; 0.1 (84 degrees) is ours",
    "The mean is over the tokens of a text, its size a mean over heads and layers. Queries and keys are taken without "
    "their own bias and before rotation.",
)


def bias_cosines(model: PreTrainedModel, held_out: Tensor, trained_len: int) -> Cosines:
    """In texts of the trained length."""
    with extended(model, "rope", mode="attention"):
        biases = capture_biases(model)
        return [_of_text(model, text[None], biases) for text in held_out[:TEXTS, -trained_len:]]


def _of_text(model: PreTrainedModel, ids_bn: Tensor, biases: Sequence[CapturedLayer]) -> list[list[float]]:
    remaining = iter(biases)
    return capture_layers(model, ids_bn, lambda layer: _of_layer(layer, next(remaining)))


def _of_layer(layer: CapturedLayer, bias: CapturedLayer) -> list[float]:
    """The cosine of each side, as `SIDES` names them."""
    a, b = bias.q_bhid, bias.k_bgjd
    q, k = layer.q_bhid - a, layer.k_bgjd - b
    groups = q.shape[1] // k.shape[1]
    pairs = (q, b.repeat_interleave(groups, 1)), (k.repeat_interleave(groups, 1), a)
    return [_size_of_mean(*pair) for pair in pairs]


def _size_of_mean(content: Tensor, bias: Tensor) -> float:
    """The mean over heads of the size of the mean cosine over tokens."""
    cosines = cosine_similarity(content.double(), bias.double(), dim=-1)
    return round(float(cosines.mean(-1).abs().mean()), 5)


def angle_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say whose angles were measured."""
    measured: BySeed[CosineTerm, Cosines] = BySeed(
        models, "bias_angles", lambda stored: stored, _mean, _by_layer, projects=projects, least=0, most=1
    )
    return [measured.verdict(CLAIM, COSINE, AXES)]


def _mean(term: CosineTerm, cosines: Cosines) -> list[float]:
    """Over layers, for each text."""
    side = SIDES.index(term.side)
    return [sum(layer[side] for layer in text) / len(text) for text in cosines]


def _by_layer(term: CosineTerm, cosines: Cosines) -> Curve:
    side = SIDES.index(term.side)
    return {n + 1: [text[n][side] for text in cosines] for n in range(len(cosines[0]))}
