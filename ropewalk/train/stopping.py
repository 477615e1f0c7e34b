"""Stopping cleanly: SIGTERM and Ctrl-C finish the step, save, and end the training."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback, TrainerControl

from ropewalk.signals import handling
from ropewalk.train.processes import any_of_us

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopOnSignal(TrainerCallback):
    """Save and stop at the end of the step in which a signal comes."""

    def __init__(self) -> None:
        self.came: int | None = None  # the number of the last signal
        self.stopped = False  # before the last step

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        """After a whole step, a checkpoint can be resumed from. Several processes stop at the same step."""
        if any_of_us(self.came is not None):
            control.should_save = True
            control.should_training_stop = True
            self.stopped = bool(state.global_step < state.max_steps)

    def note(self, number: int, frame: Any) -> None:
        """The signal handler."""
        self.came = number


@contextmanager
def recording_signals() -> Iterator[StopOnSignal]:
    """Record signals within a block. What stopped no training is sent again after the block, so that it ends the rest.

    Around a training and the saving of its model, such a block ends when the model is whole.
    """
    callback = StopOnSignal()
    with handling(SIGNALS, callback.note):
        yield callback
    if callback.came is not None and not callback.stopped:
        signal.raise_signal(callback.came)
