"""Loss of the same last tokens under growing context: does more text help, do no harm, or break the model?

The targets are the last tokens of each passage whatever the length, so that nothing but the context differs between
lengths. At the longest length the whole passage is read, and its loss and hits by position are kept beside.

Protocol: the loss of the last tokens at several contexts is Su's (bojone/rerope, eval_loss.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

from torch import Tensor

from ropewalk.evaluation.losses import measured
from ropewalk.evaluation.scores import Estimate, mean
from ropewalk.evaluation.subject import Subject
from ropewalk.evaluation.tasks.signature import Task
from ropewalk.record import AT_LEAST_ONE
from ropewalk.spec import Json

BINS = 64  # of a passage, for curves


@dataclass(frozen=True, kw_only=True)
class Context(Task):
    name: ClassVar[str] = "context"
    last: Annotated[int | None, AT_LEAST_ONE, "tokens that are judged; half the trained length where not given"] = None

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """Of one passage: its last tokens, and the whole of it by position where it is read whole."""
        ids = subject.passages(self.samples)[sample].to(subject.model.device)[None, -length:]
        last = min(self.last or subject.facts.trained_len // 2, length - 1)
        found = measured(subject.model, ids)
        result: Json = {
            "loss": found.loss(last),
            "accuracy": found.accuracy(last),
            "bits_per_byte": _bits_per_byte(subject, ids[0, -last:], found.losses_bn[0, -last:]),
        }
        if length == subject.longest:
            result |= {"curve": binned(found.losses_bn[0]), "hits": binned(found.hits_bn[0].float())}
        return result

    def condense(self, measured: Sequence[Json]) -> dict[str, Estimate]:
        """Means over passages."""
        return {name: mean([each[name] for each in measured]) for name in ("loss", "accuracy", "bits_per_byte")}


def _bits_per_byte(subject: Subject, ids: Tensor, losses: Tensor) -> float:
    """What does not depend on how a tokenizer cuts: loss in bits over the bytes that were told."""
    told = len(str(subject.tokenizer.decode(ids)).encode())
    return float(losses.double().sum()) / math.log(2) / max(1, told)


def binned(values: Tensor) -> list[float]:
    """Means over bins of equal size, or the values themselves where there are few."""
    bins = min(BINS, len(values))
    edges = [round(n * len(values) / bins) for n in range(bins + 1)]
    return [float(values[a:b].double().mean()) for a, b in pairwise(edges)]
