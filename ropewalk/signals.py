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
    ours: Any = signal.getsignal(signal.SIGINT)
    with handling((signal.SIGTERM,), ours if callable(ours) else signal.default_int_handler):
        yield


@contextmanager
def handling(signals: Sequence[signal.Signals], handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Handle signals within a block, but those that this process ignores; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
