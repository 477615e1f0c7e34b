"""The same cells in several processes of this machine, each with one thread.

A small model gains little by a second thread, much by a second process. Processes are forked: they share the weights
and begin at once. They take the cells in turn, so that none waits for another; this process only keeps what they find.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.evaluation.compare.cells import Cell
from ropewalk.evaluation.compare.runner import Finished, Measuring, here
from ropewalk.evaluation.material.subject import Subject

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
SMALL = 100_000_000  # parameters up to which a core of its own is better than a share of all
MOST = 8  # workers where their number is left open
COPIES = 4  # of the longest text's keys and values, that a worker holds at most: grown, turned, being joined


def side_by_side(workers: int = 0) -> Measuring:
    """A way for `run` to measure: in so many processes, or in as many as serve the model best."""

    def measuring(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        count = min(workers or workers_for(subject), len(missing))
        if count > 1:
            _require_forks(subject, count)
            return _measured(subject, missing, count)
        return here(subject, missing)

    return measuring


def workers_for(subject: Subject) -> int:
    """A core each for a small model, as memory allows; all cores for one worker else, and on an accelerator."""
    small = sum(each.numel() for each in subject.model.parameters()) < SMALL
    if not small or not _can_fork(subject):
        return 1
    facts = subject.facts
    kept = 2 * facts.layers * facts.groups * facts.head_dim * subject.longest * subject.model.dtype.itemsize
    return max(1, min(MOST, torch.get_num_threads(), free_bytes() // (COPIES * kept)))


def free_bytes() -> int:
    """What this machine can still give, by its own account."""
    told = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return 1024 * int(told["MemAvailable"].split()[0])


def _can_fork(subject: Subject) -> bool:
    """Accelerators do not outlive a fork, nor do the libraries of other systems; daemons may have no children."""
    daemon = multiprocessing.current_process().daemon
    return sys.platform == "linux" and subject.model.device.type == "cpu" and not daemon


def _require_forks(subject: Subject, count: int) -> None:
    if not _can_fork(subject):
        raise InvalidValue("workers", "1 but for a model on the CPU of a Linux machine", count)


def _measured(subject: Subject, missing: Sequence[Cell], count: int) -> Generator[Finished, None, None]:
    context = multiprocessing.get_context("fork")
    taken, ends, crew = context.Value("l", 0), list[Connection](), list[Any]()
    left = dict.fromkeys(missing)
    try:
        for _ in range(count):
            end, mouth = context.Pipe(duplex=False)
            ends.append(end)
            work = partial(_work, here(subject, _taking(missing, taken)), mouth, ends, os.getpid())
            crew.append(context.Process(target=work, daemon=True))
            crew[-1].start()
            mouth.close()  # the worker's end of it is the only one then, and is closed when the worker ends
        for cell, result in _heard(ends):
            del left[cell]
            yield cell, result
        _tell_of_deaths(crew, len(left))
        yield from here(subject, left)  # what died with a worker
    finally:
        for each in crew:
            each.terminate()
            each.join()


def _tell_of_deaths(crew: Sequence[Any], cells: int) -> None:
    for each in crew:
        each.join()
    dead = [str(each.exitcode) for each in crew if each.exitcode]
    if dead:
        words = "%d of %d workers died (exit status %s); the first process measures what they left, %d cells"
        logging.getLogger(__name__).warning(words, len(dead), len(crew), ", ".join(dead), cells)


def _heard(ends: Sequence[Connection]) -> Iterator[Finished]:
    """Whatever comes from any worker, until all have ended."""
    left: list[Any] = list(ends)
    while left:
        for end in wait(left):
            try:
                said: Any = end.recv()  # type: ignore[union-attr, call-arg]
            except EOFError:
                left.remove(end)
                continue
            if isinstance(said, Exception):
                raise said
            yield said


def _work(measured: Iterator[Finished], mouth: Connection, ends: Sequence[Connection], first: int) -> None:
    """In a process of its own: the next cell that nobody has taken, again and again."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the end of the first process is the end of this one,
    if os.getppid() != first:  # also if it came before this line
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one will end it
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads are gone with the fork
    torch.set_num_threads(1)
    for end in ends:
        end.close()  # the first process alone listens
    for said in _finished(measured):
        mouth.send(said)


def _finished(cells: Iterator[Finished]) -> Iterator[Finished | Exception]:
    """With what went wrong as the last, for the first process to raise."""
    try:
        yield from cells
    except Exception as error:
        if not isinstance(error, RopewalkError):
            traceback.print_exc()  # where it was is lost on the way
        yield error


def _taking(missing: Sequence[Cell], taken: Any) -> Iterator[Cell]:
    while True:
        with taken.get_lock():
            number, taken.value = taken.value, taken.value + 1
        if number >= len(missing):
            return
        yield missing[number]
