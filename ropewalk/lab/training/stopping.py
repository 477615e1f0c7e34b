"""Stopping cleanly: SIGTERM and Ctrl-C finish the step, save, and end the training."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback, TrainerControl

from ropewalk.lab.training.processes import any_of_us

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
def as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, as long as there is no step to finish."""
    with _handling((signal.SIGTERM,), signal.default_int_handler):
        yield


@contextmanager
def recording_signals() -> Iterator[StopOnSignal]:
    """Record signals within a block."""
    callback = StopOnSignal()
    with _handling(SIGNALS, callback.note):
        yield callback


@contextmanager
def _handling(signals: Sequence[signal.Signals], handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Handle signals within a block; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
