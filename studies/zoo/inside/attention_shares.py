"""How much attention goes to the first token and to near keys, layer by layer, and what the sources say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from transformers import PreTrainedModel

from ropewalk import extended
from ropewalk.measure.diagnostics.attention_weights import mass_of_first, mass_of_last
from ropewalk.measure.diagnostics.pass_states import Curves

from studies.claims import ARTICLE_1, Claim, JudgedClaim, Unit
from studies.zoo.inside.by_seed import BySeed, Curve

TEXTS = 16  # of the held-out ones
ROWS = 16  # of a text; the last half counts
NEAR = 8  # the trained length over this is near
PERCENT = Unit("percent of attention", 100, 1)
Shares = list[list[float]]  # [text, layer]


class ShareTerm(NamedTuple):
    """A share of attention in some layers, in a sum."""

    weight: float
    method: str
    words: str
    first: int | None = None  # layer, from 0
    end: int | None = None

    def __str__(self) -> str:
        """Without its weight."""
        return self.words

    @property
    def label(self) -> str:
        """Of its curve."""
        return self.method


SINK = Claim(
    "sink-appears",
    "Where texts begin with a marker, it becomes a sink: beyond the first two layers it gets at least a tenth of the "
    "attention.",
    "arXiv:2309.17453",
    ((ShareTerm(1, "marked", "attention on the first token beyond the first two layers", first=2),),),
    0.1,
    "heavily attended in nearly all layers and heads beyond the bottom two",
)
LOCAL = Claim(
    "front-layers-local",
    "Front layers attend to near keys, back layers farther: the nearest eighth of the trained length gets more "
    "attention in the first two layers than in the last two.",
    ARTICLE_1,
    (
        (
            ShareTerm(1, "rope", "attention on near keys in the first two layers", end=2),
            ShareTerm(-1, "rope", "attention on near keys in the last two", first=-2),
        ),
    ),
    theirs="'some found' attention 'local' in shallow layers, 'global' in deep ones",
)


def sink_share(model: PreTrainedModel, held_out: Tensor, trained_len: int) -> Shares:
    """On the first token, a marker, in texts of the trained length: the mean over heads and later queries."""
    texts = held_out[:TEXTS, -trained_len:].clone()
    texts[:, 0] = int(model.config.eos_token_id)
    with extended(model, "rope", mode="attention"):
        return [_later(mass_of_first(model, text[None], keys=1, rows=ROWS)) for text in texts]


def near_share(model: PreTrainedModel, held_out: Tensor, trained_len: int) -> Shares:
    """On near keys, in texts of the trained length: the mean over heads and later queries."""
    texts, near = held_out[:TEXTS, -trained_len:], max(1, trained_len // NEAR)
    with extended(model, "rope", mode="attention"):
        return [_later(mass_of_last(model, text[None], keys=near, rows=ROWS)) for text in texts]


def _later(measured: Curves) -> list[float]:
    """The mean of the last half of the queries, for each layer."""
    halves = [layer[len(layer) // 2 :] for layer in measured.layers]
    return [round(sum(half) / len(half), 5) for half in halves]


def sink_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say whose sinks were measured."""
    axes = ("layer", "attention on the first token, percent")
    return [_shares(models, "sink", projects).verdict(SINK, PERCENT, axes)]


def near_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say whose attention on near keys was measured."""
    axes = ("layer", "attention on near keys, percent")
    return [_shares(models, "near", projects).verdict(LOCAL, PERCENT, axes)]


def _shares(models: Sequence[Mapping[str, Any]], name: str, projects: Sequence[str]) -> BySeed[ShareTerm, Shares]:
    return BySeed(models, name, lambda stored: stored, _mean, _by_layer, projects=projects, least=0, most=1)


def _mean(term: ShareTerm, shares: Shares) -> list[float]:
    """Of the term's layers, for each text."""
    chosen = [text[term.first : term.end] for text in shares]
    return [sum(layers) / len(layers) for layers in chosen]


def _by_layer(term: ShareTerm, shares: Shares) -> Curve:
    return {n + 1: [text[n] for text in shares] for n in range(len(shares[0]))}
