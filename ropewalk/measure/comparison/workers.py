"""Cells measured by several processes of this machine, with one thread each.

A small model gains little from a second thread, and much from a second process. Processes are forked: they share the
weights and begin at once. Each takes the next cell when it is free; this process only stores the results.
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
from typing import Any

import torch

from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.hf.loading import free_bytes
from ropewalk.measure.comparison.runner import Cell, Finished, Measuring, measure_here
from ropewalk.measure.material.subject import Subject

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
SMALL_MODEL = 100_000_000  # parameters below which one process for each core is faster
MOST_WORKERS = 8  # workers by default
CACHES_PER_WORKER = 4  # of the longest text's keys and values, at most, in one worker: grown, rotated, being joined


def side_by_side(workers: int = 0) -> Measuring:
    """A way for `run` to measure: in `workers` processes; 0: as many as suit the model."""

    def measuring(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        count = min(workers or workers_for(subject), len(missing))
        if count > 1:
            _require_forks(subject, count)
            return _measure(subject, missing, count)
        return measure_here(subject, missing)

    return measuring


def workers_for(subject: Subject) -> int:
    """One for each core if the model is small and memory allows; else one, as on an accelerator."""
    small = sum(parameter.numel() for parameter in subject.model.parameters()) < SMALL_MODEL
    if not small or not _can_fork(subject):
        return 1
    facts = subject.facts
    cache = 2 * facts.layers * facts.groups * facts.head_dim * subject.longest * subject.model.dtype.itemsize
    return max(1, min(MOST_WORKERS, torch.get_num_threads(), free_bytes() // (CACHES_PER_WORKER * cache)))


def _can_fork(subject: Subject) -> bool:
    """Accelerators, and libraries of other systems, do not survive a fork; daemons may have no children."""
    daemon = multiprocessing.current_process().daemon
    return sys.platform == "linux" and subject.model.device.type == "cpu" and not daemon


def _require_forks(subject: Subject, count: int) -> None:
    if not _can_fork(subject):
        sentence = f"{count} workers need a model on the CPU of a Linux machine"
        raise InvalidValue.because("workers", sentence, remedy="leave out --workers")


def _measure(subject: Subject, missing: Sequence[Cell], count: int) -> Generator[Finished, None, None]:
    context = multiprocessing.get_context("fork")
    taken, readers, processes = context.Value("l", 0), list[Connection](), list[Any]()
    left = dict.fromkeys(missing)
    try:
        for _ in range(count):
            reader, writer = context.Pipe(duplex=False)
            readers.append(reader)
            work = partial(_work, measure_here(subject, _taking(missing, taken)), writer, readers, os.getpid())
            processes.append(context.Process(target=work, daemon=True))
            processes[-1].start()
            writer.close()  # the worker then has the only copy, which is closed when it ends
        for cell, result in _receive(readers):
            del left[cell]
            yield cell, result
        _warn_of_deaths(processes, len(left))
        yield from measure_here(subject, left)  # the cells of workers that died
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _warn_of_deaths(processes: Sequence[Any], cells: int) -> None:
    for process in processes:
        process.join()
    dead = [str(process.exitcode) for process in processes if process.exitcode]
    if dead:
        words = "%d of %d workers died (exit status %s); the first process measures the remaining %d cells"
        logging.getLogger(__name__).warning(words, len(dead), len(processes), ", ".join(dead), cells)


def _receive(readers: Sequence[Connection]) -> Iterator[Finished]:
    """What any worker sends, until all have ended."""
    left: list[Any] = list(readers)
    while left:
        for reader in wait(left):
            try:
                message: Any = reader.recv()  # type: ignore[union-attr, call-arg]
            except EOFError:
                left.remove(reader)
                continue
            if isinstance(message, Exception):
                raise message
            yield message


def _work(measured: Iterator[Finished], writer: Connection, readers: Sequence[Connection], first: int) -> None:
    """The loop of a worker: measure the next cell that nobody has taken."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # this process ends when the first one ends,
    if os.getppid() != first:  # even if that was before this line
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads did not survive the fork
    torch.set_num_threads(1)
    for reader in readers:
        reader.close()  # only the first process reads
    for message in _measure_cells(measured):
        writer.send(message)


def _measure_cells(cells: Iterator[Finished]) -> Iterator[Finished | Exception]:
    """The cells, and last the error that ended them, which the first process raises."""
    try:
        yield from cells
    except Exception as error:
        if not isinstance(error, RopewalkError):
            traceback.print_exc()  # another process cannot see it
        yield error


def _taking(missing: Sequence[Cell], taken: Any) -> Iterator[Cell]:
    while True:
        with taken.get_lock():
            number, taken.value = taken.value, taken.value + 1
        if number >= len(missing):
            return
        yield missing[number]
