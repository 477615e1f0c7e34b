"""What several threads do with one model: one at a time changes it or looks into it, and no forward is caught halfway.

To look into a model is to run it with other functions for a moment, which a forward of another thread would meet.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from ropewalk.errors import Conflict

CHANGES = threading.RLock()  # of models, by one thread at a time: attention functions are registered for all of them
FORWARD_TIMEOUT = 600.0  # seconds that the end of another thread's forward is waited for
_CLOSED = set[nn.Module]()  # to other threads


@contextmanager
def alone_with(model: nn.Module) -> Iterator[None]:
    """Let no other thread change the model or look into it, and refuse its forwards."""
    with CHANGES, ExitStack() as undo:
        if model not in _CLOSED:
            _CLOSED.add(model)
            undo.callback(_CLOSED.discard, model)
            mine = threading.get_ident()

            def refuse(*_: Any) -> None:
                if not torch.compiler.is_compiling() and threading.get_ident() != mine:
                    raise interrupted()

            for module in model.modules():
                undo.callback(module.register_forward_pre_hook(refuse).remove)
        yield


def interrupted() -> Conflict:
    """The refusal of a forward that meets a model in the middle of a change."""
    sentence = "another thread extends this model, looks into it, or takes its extension off"
    return Conflict.because("model", sentence, remedy="run the model when that has ended")


class Forwards:
    """The forwards that run under an extension, by their threads."""

    def __init__(self) -> None:
        self._changed, self._running, self._open = threading.Condition(), set[int](), True

    def begin(self, *_: Any) -> None:
        """The hook before a forward: refuse it where the extension is being taken off."""
        if torch.compiler.is_compiling():
            return
        with self._changed:
            if not self._open:
                raise interrupted()
            self._running.add(threading.get_ident())

    def end(self, *_: Any) -> None:
        """The hook after a forward, also after one that failed."""
        if not torch.compiler.is_compiling():
            with self._changed:
                self._running.discard(threading.get_ident())
                self._changed.notify_all()

    def close(self) -> None:
        """Let none begin any more, and wait for those of other threads."""
        with self._changed:
            self._open = False
            if not self._changed.wait_for(lambda: self._running <= {threading.get_ident()}, FORWARD_TIMEOUT):
                self._open = True
                remedy = "remove the extension when that has ended"
                raise Conflict.because("model", "another thread computes with this model", remedy=remedy)
