"""What the source of biases on queries and keys says of logits by distance, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from studies.claims import Claim, JudgedClaim, Unit
from studies.zoo.inside.by_seed import BySeed, Curve
from studies.zoo.inside.logit_terms import TERMS

LOGITS = Unit("logits", digits=3)
AXES = ("distance of the key, in tokens", "mean logit")
*OTHERS, BOTH = TERMS
CONTENTS, *MIXED = OTHERS
LOGIT = "the logit"  # the sum of the terms


class LogitFigure(NamedTuple):
    """A number from a curve: its mean between some distances, less that between others; or the mean of its size."""

    name: str
    between: tuple[float, float]  # trained lengths
    less: tuple[float, float] | None = None
    layers: tuple[float, float] = (0, 1)  # shares of the depth, of which the mean is taken


SIZE = LogitFigure("size", (0, 1))
FALL = LogitFigure("fall", (0, 0.25), (0.5, 1))
RISE = LogitFigure("rise beyond the trained length", (1, 2), (0.5, 1))
FRONT = FALL._replace(name="fall in the front layers", layers=(0, 0.5))
BACK = FALL._replace(name="fall in the back layers", layers=(0.5, 1))
LAST = FALL._replace(name="fall in the last layer", layers=(5 / 6, 1))  # of the six layers of the zoo


class LogitTerm(NamedTuple):
    """A figure of a method's logits, or of one of their terms, in a sum."""

    weight: float
    figure: LogitFigure
    of: str
    method: str = "qk_bias"

    def __str__(self) -> str:
        """Without its weight."""
        return f"{self.figure.name} of {self.of} in {self.method}"

    @property
    def label(self) -> str:
        """Of its curve."""
        return f"{self.method}: {self.of}"


CLAIMS = (
    Claim("qk-bias-term-falls", "The product of both biases falls with the distance within the trained length.",
          "kexue.fm/9577",
          ((LogitTerm(1, FALL, BOTH),),), theirs="a curve that falls"),
    Claim("qk-bias-term-largest", "The product of both biases is the largest of the four terms.", "kexue.fm/9577",
          tuple((LogitTerm(1, SIZE, BOTH), LogitTerm(-1, SIZE, other)) for other in OTHERS),
          theirs="the largest of four curves, of one text and one layer"),
    Claim("qk-bias-weak-terms", "The two mixed products, of a bias and a content, are smaller than the product of both "
          "contents and than that of both biases.", "kexue.fm/9577",
          tuple((LogitTerm(1, SIZE, larger), LogitTerm(-1, SIZE, smaller))
                for larger in (CONTENTS, BOTH) for smaller in MIXED), theirs="a guess, and four curves"),
    Claim("rope-falls-and-rises", "Without biases the logit falls with the distance within the trained length, and "
          "rises beyond it.", "kexue.fm/9577",
          ((LogitTerm(1, FALL, LOGIT, "rope"),), (LogitTerm(1, RISE, LOGIT, "rope"),)), theirs="a curve"),
    Claim("qk-bias-falls-more", "With biases the logit falls more with the distance within the trained length than "
          "without.", "kexue.fm/9577",
          ((LogitTerm(1, FALL, LOGIT), LogitTerm(-1, FALL, LOGIT, "rope")),), theirs="two curves"),
    Claim("qk-bias-rises-less", "With biases the logit rises less beyond the trained length than without.",
          "kexue.fm/9577", ((LogitTerm(1, RISE, LOGIT, "rope"), LogitTerm(-1, RISE, LOGIT)),),
          theirs="one curve rises, the other falls"),
    Claim("qk-bias-front-layers", "With biases the logit falls more within the trained length in the front half of the "
          "layers than in the back half.", "kexue.fm/9577",
          ((LogitTerm(1, FRONT, LOGIT), LogitTerm(-1, BACK, LOGIT)),)),
    Claim("qk-bias-last-layer", "With biases the logit falls more weakly in the layers behind: in the last one "
          "less than in the mean of all.", "kexue.fm/9577",
          ((LogitTerm(1, FALL, LOGIT), LogitTerm(-1, LAST, LOGIT)),), theirs="'weaker' in the layers behind"),
)  # fmt: skip


class LogitTerms:
    """The terms of one model, [text, term, layer, bin of distances], up to twice the trained length."""

    def __init__(self, measured: Mapping[str, Any]) -> None:
        self.distances = torch.tensor(measured["distances"], dtype=torch.float64)
        self._counts = torch.tensor(measured["counts"], dtype=torch.float64)
        self._trained_len = measured["trained_len"]
        self._terms = torch.tensor(measured["texts"], dtype=torch.float64)

    def of_texts(self, figure: LogitFigure, of: str) -> Tensor:
        """One figure for each text."""
        curve = self.curve(of, figure.layers)
        if figure.less is None:
            return self._mean(curve.abs(), figure.between)
        return self._mean(curve, figure.between) - self._mean(curve, figure.less)

    def curve(self, of: str, layers: tuple[float, float] = (0, 1)) -> Tensor:
        """A term, or the sum of all, averaged over layers: [text, distance]."""
        every = self._terms.sum(1) if of == LOGIT else self._terms[:, TERMS.index(of)]
        first, last = (round(share * every.shape[1]) for share in layers)
        return every[:, first:last].mean(1)

    def points(self, of: str) -> Curve:
        """The curve by distance."""
        return dict(zip(self.distances.tolist(), self.curve(of).T.tolist(), strict=True))

    def _mean(self, curve: Tensor, between: tuple[float, float]) -> Tensor:
        """Over distances: a bin counts as often as it has some."""
        first, last = (times * self._trained_len for times in between)
        counts = self._counts.where((self.distances >= first) & (self.distances < last), 0.0)
        return curve @ counts / counts.sum()


def logit_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say whose terms were measured."""
    measured: BySeed[LogitTerm, LogitTerms] = BySeed(
        models,
        "logit_terms",
        LogitTerms,
        lambda term, one: one.of_texts(term.figure, term.of).tolist(),
        lambda term, one: one.points(term.of),
        projects=projects,
    )
    return [measured.verdict(claim, LOGITS, AXES) for claim in CLAIMS]
