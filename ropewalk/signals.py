"""Signals that are handled for as long as a block lasts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that what a block started is ended with it."""
    with handling((signal.SIGTERM,), signal.default_int_handler):
        yield


@contextmanager
def handling(signals: Sequence[signal.Signals], handler: Callable[[int, Any], Any]) -> Iterator[None]:
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
