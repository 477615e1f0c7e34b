"""More processes of one search on this machine: each opens the study for itself, and has its share of the cores."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event

import torch

from ropewalk.search.fitting import Fitting

OpenFitting = Callable[[], Fitting]  # loads a model and opens the study; sent to other processes


@contextmanager
def helped(workers: int, open_fitting: OpenFitting) -> Iterator[Callable[[], None]]:
    """Run the other workers for as long as a block lasts; what it yields, and an exception, ends their search."""
    if workers == 1:
        yield lambda: None
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // workers))
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    settings = (stop, open_fitting, workers)
    helpers = [context.Process(target=_help, args=(number, *settings), daemon=True) for number in range(1, workers)]
    for process in helpers:
        process.start()
    try:
        yield stop.set
    except BaseException:
        stop.set()
        raise
    finally:
        for process in helpers:
            process.join()
        torch.set_num_threads(threads)


def _help(number: int, stop: Event, open_fitting: OpenFitting, workers: int) -> None:
    """One more worker: it searches and measures; the first worker writes the answer, and reports an interrupt."""
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    with suppress(KeyboardInterrupt):
        fitting = open_fitting()
        fitting.leads, fitting.stopped = False, stop.is_set
        if not fitting.search():
            fitting.judge_share(number)
