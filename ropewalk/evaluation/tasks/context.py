"""Loss of the same last tokens under growing context: does more context help, or break the model?

The targets are the last tokens of each passage at every length, so that only the context differs between lengths.
At the longest length the whole passage is read, and its loss and hits by position are stored too.

A token in the middle of a text of the trained length has seen only half of that length. So the base model also reads
the same tokens under a window of the trained length, piece by piece: what is no better than that makes no use of the
longer context. Where more tokens are scored than a text of the trained length has, lengths differ in their tokens too;
then that window alone is the base model's standard, since it reads the same ones.

Protocol: the loss of the last tokens at several contexts is Su's (bojone/rerope, eval_loss.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import torch

from ropewalk.evaluation.material.subject import Subject
from ropewalk.evaluation.metrics.intervals import LOSS, SHARE, Estimate, means
from ropewalk.evaluation.metrics.losses import binned, bits_per_byte, text_bytes, token_losses
from ropewalk.evaluation.tasks.signature import Task
from ropewalk.record import AT_LEAST_ONE
from ropewalk.spec import Json

PIECES = 8  # of a trained length, read with what stands before them


@dataclass(frozen=True, kw_only=True)
class Context(Task):
    name: ClassVar[str] = "context"
    version: ClassVar[int] = 2  # 1 read nothing under a window
    last: Annotated[int | None, AT_LEAST_ONE, "tokens that are scored; half the trained length if nothing"] = None

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One passage: its last tokens, and all tokens by position at the longest length."""
        ids = subject.begun(subject.passages(self.samples)[sample], length)[None]
        trained_len = subject.facts.trained_len
        last = self.last_of(trained_len, length)
        scores, size = token_losses(subject.model, ids), text_bytes(subject.tokenizer, ids[0, -last:])
        result: Json = {
            "project": subject.projects(self.samples)[sample],
            "loss": scores.loss(last),
            "accuracy": scores.accuracy(last),
            "bits_per_byte": bits_per_byte(scores.losses_bn[0, -last:], size),
        }
        if length == subject.longest:
            result |= {"curve": binned(scores.losses_bn[0]), "hits": binned(scores.hits_bn[0].float())}
        elif length == trained_len and subject.is_base:
            most = self.last_of(trained_len, subject.longest)
            result["window_loss"] = window_loss(subject, sample, most, self.samples)
        return result

    def last_of(self, trained_len: int, length: int) -> int:
        """The number of tokens that are scored in texts of a length; the first token has no prediction."""
        return min(self.last or trained_len // 2, length - 1)

    def standard(self, trained_len: int, length: int, longest: int) -> str:
        """Which number of the base model at its trained length is of the tokens that are scored at a length.

        Empty where none is: of more tokens than it read at once, its window is measured for the longest texts alone.
        """
        scored = self.last_of(trained_len, length)
        if scored == self.last_of(trained_len, trained_len):
            return "loss"
        return "window_loss" if scored == self.last_of(trained_len, longest) else ""

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over passages."""
        return means(results, loss=LOSS, accuracy=SHARE, bits_per_byte=LOSS)


def window_loss(subject: Subject, sample: int, last: int, samples: int) -> float:
    """The loss of the last tokens of a passage, each after 7/8 to all of a trained length of text."""
    ids, size = subject.passages(samples)[sample].to(subject.device), subject.facts.trained_len
    ends = [*range(len(ids), len(ids) - last, -max(1, size // PIECES)), len(ids) - last]
    pieces = ((subject.begun(ids[:end], min(end, size)), begin - end) for end, begin in pairwise(ends))
    losses = [token_losses(subject.model, piece[None]).losses_bn[0, first:] for piece, first in pieces]
    return float(torch.cat(losses).double().mean())
