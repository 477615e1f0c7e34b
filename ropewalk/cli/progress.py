"""What a user sees while a model works: how much is done, and text as it grows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

INCOMPLETE = "\ufffd"  # what an incomplete character is decoded to
LONGEST = 64  # tokens of a line that are decoded together
INTERVAL = 30.0  # seconds between two lines where no terminal shows a bar


class WorkProgress:
    """How much is done, on the error stream: a bar on a terminal, else a line every half minute."""

    def __init__(self, bar: Progress, label: str, *, unit: str, quiet: bool) -> None:
        self._bar, self._task, self._label = bar, bar.add_task(label, total=None), label
        self._unit, self._quiet, self._last_line, self._closed = unit, quiet, time.monotonic(), False

    def __call__(self, done: float, total: float, label: str = "") -> None:
        counted = f"{done:,.0f} of {total:,.0f} {self._unit}" if self._unit else ""
        self._label = label or counted or self._label
        self._bar.update(self._task, completed=done, total=total, description=self._label)
        if self._bar.disable and not self._quiet and time.monotonic() - self._last_line >= INTERVAL:
            self._last_line = time.monotonic()
            print(f"ropewalk: {self._label}, {min(1.0, done / total):.0%}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar before anything else is printed; more than once does no harm."""
        if not self._closed:
            self._bar.stop()
        self._closed = True


@contextmanager
def showing_progress(label: str, *, unit: str = "", quiet: bool = False) -> Iterator[WorkProgress]:
    """Progress for as long as a block lasts. `unit`: count what is done in these, such as "tokens read"; `quiet`:
    nothing at all where there is no terminal."""
    terminal = sys.stderr.isatty()
    console = Console(stderr=True, quiet=not terminal)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, disable=not terminal) as bar:
        yield WorkProgress(bar, label, unit=unit, quiet=quiet)


def pieces(tokenizer: Any, tokens: Iterable[int]) -> Iterator[str]:
    """Text as it grows; a piece is held back while its last character may be incomplete.

    Finished lines are not decoded again, except their last token: decoders need it to keep a leading space.
    """
    line: list[int] = []
    printed, text = 0, ""
    for token in tokens:
        line.append(token)
        text = tokenizer.decode(line, skip_special_tokens=True)
        if text.endswith(INCOMPLETE):
            continue
        yield text[printed:]
        printed = len(text)
        if text.endswith("\n") or len(line) >= LONGEST:
            line = [token]
            text = tokenizer.decode(line, skip_special_tokens=True)
            printed = len(text)
    if len(text) > printed:
        yield text[printed:]
