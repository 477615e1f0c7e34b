"""Stopping in good order: SIGTERM and Ctrl-C finish the step, save, and end the training."""

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
        """A whole step is behind us: what is saved now can be gone on from. Several processes stop at the same one."""
        if any_of_us(self.came):
            control.should_save = True
            control.should_training_stop = True

    def note(self, number: int, frame: Any) -> None:
        """What a signal does."""
        self.came = True


@contextmanager
def as_interrupt() -> Iterator[None]:
    """SIGTERM is what Ctrl-C is, as long as there is no step to be finished."""
    with _handling((signal.SIGTERM,), signal.default_int_handler):
        yield


@contextmanager
def listening() -> Iterator[StopOnSignal]:
    """Signals are noted for as long as a block lasts."""
    heard = StopOnSignal()
    with _handling(SIGNALS, heard.note):
        yield heard


@contextmanager
def _handling(signals: Sequence[signal.Signals], handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """What signals do for as long as a block lasts; only a program's main thread can hear them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, own in before.items():
            signal.signal(each, own)
