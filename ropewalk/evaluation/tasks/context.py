"""Loss of the same last tokens under growing context: does more context help, or break the model?

The targets are the last tokens of each passage at every length, so that only the context differs between lengths.
At the longest length the whole passage is read, and its loss and hits by position are stored too.

Protocol: the loss of the last tokens at several contexts is Su's (bojone/rerope, eval_loss.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import LOSS, SHARE, Estimate, means
from ropewalk.evaluation.metrics.losses import binned, bits_per_byte, text_bytes, token_losses
from ropewalk.evaluation.tasks.signature import Task
from ropewalk.record import AT_LEAST_ONE
from ropewalk.spec import Json


@dataclass(frozen=True, kw_only=True)
class Context(Task):
    name: ClassVar[str] = "context"
    last: Annotated[int | None, AT_LEAST_ONE, "tokens that are scored; half the trained length if nothing"] = None

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One passage: its last tokens, and all tokens by position at the longest length."""
        ids = subject.passages(self.samples)[sample].to(subject.device)[None, -length:]
        last = min(self.last or subject.facts.trained_len // 2, length - 1)
        scores, size = token_losses(subject.model, ids), text_bytes(subject.tokenizer, ids[0, -last:])
        result: Json = {
            "loss": scores.loss(last),
            "accuracy": scores.accuracy(last),
            "bits_per_byte": bits_per_byte(scores.losses_bn[0, -last:], size),
        }
        if length == subject.longest:
            result |= {"curve": binned(scores.losses_bn[0]), "hits": binned(scores.hits_bn[0].float())}
        return result

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over passages."""
        return means(results, loss=LOSS, accuracy=SHARE, bits_per_byte=LOSS)
