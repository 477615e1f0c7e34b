"""What is seen while a model works: how much is done, how far a long text is read, and text as it grows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

HALF = "\ufffd"  # what half of a character is decoded to
LONGEST = 64  # tokens of a line that are decoded together
PATIENCE = 30.0  # seconds between two lines where no terminal shows a bar


class WorkProgress:
    """How much is done: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, bar: Progress, label: str) -> None:
        self._bar, self._task, self._label = bar, bar.add_task(label), label
        self._said = time.monotonic()

    def __call__(self, done: float, total: float, label: str = "") -> None:
        self._label = label or self._label
        self._bar.update(self._task, completed=done, total=total, description=self._label)
        if self._bar.disable and time.monotonic() - self._said >= PATIENCE:
            self._said = time.monotonic()
            print(f"ropewalk: {self._label}, {min(1.0, done / total):.0%}", file=sys.stderr, flush=True)


@contextmanager
def doing(label: str) -> Iterator[WorkProgress]:
    """For as long as it is done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield WorkProgress(bar, label)


class ReadingBar:
    """A bar on the error stream, from the first piece that is read to the first token that is shown."""

    def __init__(self, bar: Progress) -> None:
        self.shown, self._task, self._over = bar, bar.add_task("reading", total=None), False

    def __call__(self, done: int, total: int) -> None:
        self.shown.update(self._task, completed=done, total=total, description=f"{done:,} of {total:,} tokens read")

    def done(self) -> None:
        """Take the bar away: from here on the text is what is seen."""
        if not self._over:
            self.shown.stop()
        self._over = True


@contextmanager
def reading() -> Iterator[ReadingBar]:
    """A bar, where there is a terminal; nothing at all elsewhere."""
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    bar = ReadingBar(Progress(*columns, console=console, transient=True, redirect_stdout=False))
    with bar.shown:
        yield bar


def pieces(tokenizer: Any, tokens: Iterable[int]) -> Iterator[str]:
    """Text as it grows; a piece is held back while it may still be half of a character.

    What is done is not decoded again, but for one token: after it, decoders know that a space is no beginning.
    """
    seen: list[int] = []
    shown, text = 0, ""
    for token in tokens:
        seen.append(token)
        text = tokenizer.decode(seen, skip_special_tokens=True)
        if text.endswith(HALF):
            continue
        yield text[shown:]
        shown = len(text)
        if text.endswith("\n") or len(seen) >= LONGEST:
            seen = [token]
            text = tokenizer.decode(seen, skip_special_tokens=True)
            shown = len(text)
    if len(text) > shown:
        yield text[shown:]
