"""Signals within a block."""

import os
import signal
import threading

import pytest

from ropewalk.signals import as_interrupt, handling


def test_sigterm_is_an_interrupt_within_the_block_alone():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)  # handled before the call returns
    assert signal.getsignal(signal.SIGTERM) is before


def test_every_signal_has_its_handler_from_before():
    before, came = signal.getsignal(signal.SIGUSR1), []
    with handling((signal.SIGUSR1,), lambda number, frame: came.append(number)):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert (came, signal.getsignal(signal.SIGUSR1)) == ([signal.SIGUSR1], before)


def test_nothing_is_handled_in_another_thread():
    """Python lets only the main thread set handlers."""
    before, seen = signal.getsignal(signal.SIGTERM), []

    def run():
        with as_interrupt():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_this_process_ignores_stays_ignored():
    """As nohup has it: whoever began the process wants no signal to end it."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with handling((signal.SIGUSR1,), lambda number, frame: pytest.fail("heard")):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)
