"""A window schedule: rows keep their length, and what a token sees in them grows by steps.

    w(t) = min(L, first + floor(rate t)),   and a token at n sees the keys from w(t) floor(n / w(t)) on

A row of L tokens is cut into pieces of w(t) tokens, and also where a text begins; no token sees beyond its piece. In
the last steps w(t) is L, and attention is as without a schedule.

Source: Zhu et al. 2025 (SkyLadder), arXiv:2503.15450, and its pretraining code (first 32, rate 1/8).

A piece is numbered from 0, which is how rows say where a text begins: rotations know differences alone, so this is the
authors' mask, for any attention that reads packed texts. The first token of a piece keeps its label, since the token
before it predicts it. The window depends on a row's index alone: resuming needs no state, and loaders can read ahead.
"""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import TrainerCallback

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.train.data.packs import Row
from ropewalk.train.train import TrainingPlan

FIRST_WINDOW, WINDOW_RATE = 32, 1 / 8  # the authors', for rows of 8,192 tokens and 64,000 steps


class WindowSchedule(Dataset[Row]):
    """The rows of a plan, each cut as its step asks; `window(step)` says how."""

    def __init__(
        self,
        rows: Dataset[Row],
        plan: TrainingPlan,
        *,
        first: int = FIRST_WINDOW,
        rate: float = WINDOW_RATE,
        processes: int | None = None,
    ) -> None:
        self._rows, self._first, self._rate = rows, first, rate
        self._length = rows[0]["input_ids"].shape[-1]
        self._require_reached(plan.steps)
        shared = processes or int(os.environ.get("WORLD_SIZE", "1"))
        self._per_step = plan.rows * plan.accumulate * shared
        self.callbacks = (*getattr(rows, "callbacks", ()), SameSteps(plan))
        self.record = {**getattr(rows, "record", {}), "windows": [first, rate]}

    def __len__(self) -> int:
        return len(self._rows)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Row:
        row, window = self._rows[index], self.window(index // self._per_step)
        if window >= self._length:
            return row
        return {**row, "position_ids": cut(row["position_ids"], window)}

    def window(self, step: int) -> int:
        """The keys that a token sees at most, in a step counted from 0."""
        return min(self._length, self._first + int(self._rate * step))

    def _require_reached(self, steps: int) -> None:
        """Refuse a window that is not one, and one that has not become the row's length when the plan ends."""
        if not 1 <= self._first <= self._length:
            raise InvalidValue("first_window", f"from 1 to the length of a row ({self._length})", self._first)
        if self.window(steps - 1) < self._length:
            least = math.ceil(1000 * (self._length - self._first) / max(steps - 1, 1)) / 1000
            sentence = f"the window is {self.window(steps - 1)} of {self._length} tokens in the last of {steps} steps"
            remedy = f"pass a window_rate of at least {least:g} tokens a step, or plan more steps; a run can be stopped"
            raise DoesNotFit.because("window_rate", sentence, remedy=remedy)


class SameSteps(TrainerCallback):
    """Refuses a training whose steps hold other rows than those of the schedule's plan."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._planned = plan.rows, plan.accumulate

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Compare the plan with the training's arguments."""
        got = args.per_device_train_batch_size, args.gradient_accumulation_steps
        if got != self._planned:
            rule = "that of the window schedule: {} rows, {} batches a step".format(*self._planned)
            raise Conflict("plan", rule, got, remedy="make the schedule with the plan of the training")


def cut(positions: Tensor, window: int) -> Tensor:
    """Positions that begin again at every multiple of the window in the row, and where they did before.

    cut(torch.tensor([0, 1, 2, 3, 4, 0, 1, 2]), 3)  # [0, 1, 2, 0, 1, 0, 0, 1]
    """
    places = torch.arange(positions.shape[-1], device=positions.device).expand_as(positions)
    begins = places - positions  # where the text of each token begins in its row
    return places - torch.maximum(begins, places // window * window)
