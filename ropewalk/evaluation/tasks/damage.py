"""What an extension does to short texts: the difference to the base model within the trained length.

    loss(extended) - loss(base),   KL = sum_v p(v) (log p(v) - log q(v)) with p of the base model,   and the share of
    positions where both choose the same next token

Always measured at the trained length: beyond it the base model is no reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import ANY, LOSS, SHARE, Estimate, means
from ropewalk.evaluation.tasks.signature import Task
from ropewalk.spec import Json


@dataclass(frozen=True, kw_only=True)
class Damage(Task):
    name: ClassVar[str] = "damage"

    def at(self, lengths: Sequence[int], trained_len: int) -> tuple[int, ...]:
        """The trained length only."""
        return (trained_len,)

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One text."""
        ids = subject.begun(subject.passages(self.samples)[sample][:length], length)[None]
        extended = _log_shares(subject, ids)
        with subject.as_trained():
            original = _log_shares(subject, ids)
        losses = [-log_shares[:-1].gather(1, ids[0, 1:, None]).mean() for log_shares in (extended, original)]
        return {
            "project": subject.projects(self.samples)[sample],
            "loss": float(losses[0] - losses[1]),
            "kl": float((original.exp() * (original - extended)).sum(-1).mean()),
            "agreement": float((original.argmax(-1) == extended.argmax(-1)).float().mean()),
        }

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over texts."""
        return means(results, loss=ANY, kl=LOSS, agreement=SHARE)


@torch.no_grad()
def _log_shares(subject: Subject, ids: Tensor) -> Tensor:
    logits: Tensor = subject.model(input_ids=ids, use_cache=False).logits[0]
    return logits.double().log_softmax(-1)
