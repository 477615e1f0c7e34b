"""Stopping cleanly: SIGTERM and Ctrl-C finish the step, save, and end the training."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback, TrainerControl

from ropewalk.lab.training.processes import any_of_us
from ropewalk.signals import handling

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopOnSignal(TrainerCallback):
    """Save and stop at the end of the step in which a signal comes."""

    def __init__(self) -> None:
        self.came = False

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **_: Any) -> None:
        """After a whole step, a checkpoint can be resumed from. Several processes stop at the same step."""
        if any_of_us(self.came):
            control.should_save = True
            control.should_training_stop = True

    def note(self, number: int, frame: Any) -> None:
        """The signal handler."""
        self.came = True


@contextmanager
def recording_signals() -> Iterator[StopOnSignal]:
    """Record signals within a block."""
    callback = StopOnSignal()
    with handling(SIGNALS, callback.note):
        yield callback
