"""Tokens that need far context: the objective of `fit --objective far` counts their loss and no other.

The base model fixes them once for each text, within its trained length: what it predicts with a context of that length
and not with an eighth of it. No extension can choose its tokens.

Source: Shang et al. 2025, arXiv:2502.20082 (LongRoPE2), whose search counts the loss of tokens that need far context
("needle-driven"). Deviation: there they are the answers to needles that were put into books; here they are tokens of
the texts themselves, by LongPPL's rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor, nn

from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate, mean, projects_of
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.measure.metrics.perplexity import key_tokens
from ropewalk.measure.tasks import Task
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.spec import Json

Places = tuple[tuple[int, ...], ...]  # for each text, among its last tokens
NEAR_PART = 8  # the near context is one part of so many of the trained length


def far_tokens(model: nn.Module, text: Tensor, trained_len: int, begin: Sequence[int] = ()) -> Tensor:
    """Which tokens of a text need far context, by the base model: [tokens - 1]."""
    return key_tokens(model, text, near=max(1, trained_len // NEAR_PART), far=trained_len, begin=begin)


@dataclass(frozen=True, kw_only=True)
class FarTokens(Task):
    """Measured on the base model."""

    name: ClassVar[str] = "far_tokens"
    last: Annotated[int, AT_LEAST_ONE, "last tokens, among which they are"]

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """Where they are in one text."""
        text, trained_len = subject.passages(self.samples)[sample].to(subject.device), subject.facts.trained_len
        text = text[-length:][-(self.last + trained_len) :]  # no context begins before that
        flags = far_tokens(subject.model, text, trained_len, subject.begin)[-self.last :]
        return {"places": flags.nonzero().flatten().tolist()}

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Nothing: texts are used one by one."""
        return {}


@dataclass(frozen=True, kw_only=True)
class FarLoss(Task):
    """The mean loss of the tokens at the places that were fixed."""

    name: ClassVar[str] = "far_loss"
    last: Annotated[int, AT_LEAST_ONE, "last tokens, among which they are"]
    places: Annotated[Places, "of each text"]

    def identity(self, sample: int) -> Json:
        """A sample depends on its own places."""
        return {**super().identity(sample), "places": self.places[sample]}

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One text; 0 without such tokens, of which it then has none."""
        ids, places = subject.begun(subject.passages(self.samples)[sample], length)[None], self.places[sample]
        losses = token_losses(subject.model, ids).losses_bn[0, -self.last :][list(places)].double()
        loss = float(losses.mean()) if places else 0.0
        return {"project": subject.projects(self.samples)[sample], "loss": loss, "tokens": len(places)}

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """The mean over tokens, with an interval over texts."""
        counted = [result for result in results if result["tokens"]]
        losses, tokens = ([result[name] for result in counted] for name in ("loss", "tokens"))
        return {"loss": mean(losses, tokens, groups=projects_of(counted), least=0.0)}
