"""How much of a long job is done: a bar on a terminal or in a notebook, elsewhere a line now and then, or nothing."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Event, Thread
from typing import Any, Literal

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from ropewalk.extension.notation import minutes

FIRST_LINE_SECONDS, INTERVAL = 2.0, 30.0  # seconds until the first line where nothing shows a bar, and between two
# True: a bar where somebody looks, else nothing; lines: a bar, else lines for a log; False: nothing.
Shown = Literal[True, False, "lines"]
QUIET_SECONDS = 1.0  # seconds in which nothing is measured
REDRAWN = 0.1  # seconds between two pictures of a notebook's bar


class BarUnderTable(Progress):
    """A bar, below what is known so far."""

    known = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        """What is drawn, from above; a row of the table that is too long is cut."""
        if self.known:
            yield Text(self.known, no_wrap=True, overflow="ellipsis")
        yield from super().get_renderables()


class TerminalBar:
    """A bar on the error stream with the last table above it, removed when it is closed."""

    def __init__(self, label: str) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = BarUnderTable(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        self._task = self._bar.add_task(label, total=None)
        self._bar.start()

    def show(self, label: str, done: float, total: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=total or None, description=label)

    def table(self, words: str) -> None:
        """Draw it above the bar."""
        self._bar.known = words
        self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class NotebookBar:
    """A bar as HTML in the output of a cell: it needs no widgets, and a saved notebook does not keep it."""

    def __init__(self, label: str) -> None:
        ipython: Any = import_module("IPython.display")  # only a notebook has it
        self._place, self._drawn = ipython.display(_mime(label, 0, 0), raw=True, display_id=True), 0.0

    def show(self, label: str, done: float, total: float) -> None:
        """Draw the bar again, but not so often that the browser is busy with it."""
        now = time.monotonic()
        if now - self._drawn >= REDRAWN or done >= total:
            self._drawn = now
            self._place.update(_mime(label, done, total), raw=True)

    def table(self, words: str) -> None:
        """Nothing: the result of a cell is a table itself."""

    def close(self) -> None:
        """Leave an empty output."""
        self._place.update({"text/html": "", "text/plain": ""}, raw=True)


class LinesNowAndThen:
    """A line on the error stream after two seconds and every half minute by the clock, with the time that is left."""

    def __init__(self, label: str) -> None:
        self._label, self._done, self._total, self._first = label, 0.0, 0.0, 0.0
        self._begun = self._moved = time.monotonic()
        self._closed = Event()
        Thread(target=self._print, daemon=True, name="ropewalk-progress").start()

    def show(self, label: str, done: float, total: float) -> None:
        """Remember that much; what is done in the first second was done before."""
        now = time.monotonic()
        if not self._total:
            self._begun = now
        if now - self._begun < QUIET_SECONDS:
            self._first = done
        if done != self._done:
            self._moved = now
        self._label, self._done, self._total = label, done, total

    def table(self, words: str) -> None:
        """Lines of their own: a log keeps all."""
        print(f"\n{words}\n", file=sys.stderr, flush=True)

    def _print(self) -> None:
        wait = FIRST_LINE_SECONDS
        while not self._closed.wait(wait):
            wait = INTERVAL
            print(f"ropewalk: {self._label}{self._share()}", file=sys.stderr, flush=True)

    def _share(self) -> str:
        if not self._total:
            return ""
        done = self._done - self._first
        # Worked out at the last step, and counted down since: while a long step is measured it does not grow.
        ended = self._moved + (self._moved - self._begun) * (self._total - self._done) / done if done > 0 else 0.0
        left = ended - time.monotonic()
        words = f", about {minutes(left)} left" if left > 0 else ""
        return f", {min(1.0, self._done / self._total):.0%}{words}"

    def close(self) -> None:
        """Lines stay."""
        self._closed.set()


class WorkProgress:
    """What a job calls with how much is done, and in all; and with a label, if that has changed."""

    def __init__(self, display: NotebookBar | TerminalBar | LinesNowAndThen | None, label: str, unit: str = "") -> None:
        self._display, self._label, self._unit, self._closed = display, label, unit, False

    def __call__(self, done: float, total: float, label: str = "") -> None:
        counted = f"{done:,.0f} of {total:,.0f} {self._unit}" if self._unit else ""
        self._label = label or counted or self._label
        if self._display:
            self._display.show(self._label, done, total)

    def note(self, words: str) -> None:
        """A line on the error stream, where progress is shown."""
        if self._display:
            print(f"ropewalk: {words}", file=sys.stderr)

    def table(self, words: str) -> None:
        """What is known so far, where progress is shown."""
        if self._display:
            self._display.table(words)

    def close(self) -> None:
        """Remove the bar before anything else is printed; more than once does no harm."""
        if self._display and not self._closed:
            self._display.close()
        self._closed = True


@contextmanager
def showing_progress(label: str, *, unit: str = "", shown: Shown = True) -> Iterator[WorkProgress]:
    """Progress for as long as a block lasts; `unit`: count what is done in these, such as "tokens read"."""
    progress = WorkProgress(_display(label, shown), label, unit)
    try:
        yield progress
    finally:
        progress.close()


def _display(label: str, shown: Shown) -> NotebookBar | TerminalBar | LinesNowAndThen | None:
    if not shown:
        return None
    if in_notebook():
        return NotebookBar(label)
    if sys.stderr.isatty():
        return TerminalBar(label)
    return LinesNowAndThen(label) if shown == "lines" else None


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this: IPython's shell has a kernel there, and none on a terminal."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython(), "kernel") if ipython else False


def _mime(label: str, done: float, total: float) -> dict[str, str]:
    return {"text/html": bar_as_html(label, done, total), "text/plain": label}


def bar_as_html(label: str, done: float, total: float) -> str:
    """The browser's own bar, which has the colours of its page; it moves to and fro until a total is known."""
    share = f' value="{min(1.0, done / total):.4f}"' if total else ""
    percent = f" {min(1.0, done / total):.0%}" if total else ""
    return f"<div><progress{share}></progress> {html.escape(label)}{percent}</div>"
