"""Loss of the same last tokens under growing context: does more text help, do no harm, or break the model?

The targets are the last tokens of each passage whatever the length, so that nothing but the context differs between
lengths. At the longest length the whole passage is read, and its loss and hits by position are kept beside.

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
    last: Annotated[int | None, AT_LEAST_ONE, "tokens that are judged; half the trained length where not given"] = None

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """Of one passage: its last tokens, and the whole of it by position where it is read whole."""
        ids = subject.passages(self.samples)[sample].to(subject.model.device)[None, -length:]
        last = min(self.last or subject.facts.trained_len // 2, length - 1)
        found, told = token_losses(subject.model, ids), text_bytes(subject.tokenizer, ids[0, -last:])
        result: Json = {
            "loss": found.loss(last),
            "accuracy": found.accuracy(last),
            "bits_per_byte": bits_per_byte(found.losses_bn[0, -last:], told),
        }
        if length == subject.longest:
            result |= {"curve": binned(found.losses_bn[0]), "hits": binned(found.hits_bn[0].float())}
        return result

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over passages."""
        return means(results, loss=LOSS, accuracy=SHARE, bits_per_byte=LOSS)
