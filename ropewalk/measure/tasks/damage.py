"""What an extension does to short texts: the difference to the base model within the trained length.

    loss(extended) - loss(base),   KL = sum_v p(v) (log p(v) - log q(v)) with p of the base model,   and the share of
    positions where both choose the same next token

KL and agreement are over all positions, or over evenly spaced ones where all their logits would need over 256 MiB.
Always measured at the trained length: beyond it the base model is no reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ropewalk.hf.use.long_text import sampled_logits
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import ANY, LOSS, SHARE, Estimate, means
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.spec import Json

LOGITS_KEPT = 2**26  # of one reading that are kept: 256 MiB
POSITIONS = 16  # that are compared at once


@dataclass(frozen=True, kw_only=True)
class Damage(Task):
    name: ClassVar[str] = "damage"

    def at(self, lengths: Sequence[int], trained_len: int) -> tuple[int, ...]:
        """The trained length only."""
        return (trained_len,)

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One text."""
        ids = subject.begun(subject.passages(self.samples)[sample][:length], length)[None]
        words: Any = subject.model.get_input_embeddings().weight
        every = -(-length * len(words) // LOGITS_KEPT)
        extended = sampled_logits(subject.model, ids, every=every)
        with subject.as_trained():
            original = sampled_logits(subject.model, ids, every=every)
        shares = [torch.cat(part) for part in zip(*_compare(original.logits[0], extended.logits[0]), strict=True)]
        return {
            "project": subject.projects(self.samples)[sample],
            "loss": float((extended.losses.double() - original.losses.double()).mean()),
            "kl": float(shares[0].mean()),
            "agreement": float(shares[1].double().mean()),
        }

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over texts."""
        return means(results, loss=ANY, kl=LOSS, agreement=SHARE)


def _compare(original: Tensor, extended: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """KL and agreement of some positions after the other: float64 logits of all of them need much memory."""
    for p, q in zip(torch.split(original, POSITIONS), torch.split(extended, POSITIONS), strict=True):
        log_p, log_q = (logits.double().log_softmax(-1) for logits in (p, q))
        yield (log_p.exp() * (log_p - log_q)).sum(-1), p.argmax(-1) == q.argmax(-1)
