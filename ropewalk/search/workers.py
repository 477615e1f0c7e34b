"""More processes of one search on this machine: each opens the study for itself, and has its share of the cores."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch

from ropewalk.search.fitting import Fitting
from ropewalk.trained_to import stated, trained_to
from ropewalk.trust import trusted, trusting

OpenFitting = Callable[[], Fitting]  # loads a model and opens the study; sent to other processes


@contextmanager
def helped(workers: int, open_fitting: OpenFitting) -> Iterator[None]:
    """Run the other workers for as long as a block lasts."""
    if workers == 1:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // workers))
    context = multiprocessing.get_context("spawn")
    settings = (open_fitting, workers, trusted(), stated())
    helpers = [context.Process(target=_help, args=(number, *settings), daemon=True) for number in range(1, workers)]
    for process in helpers:
        process.start()
    try:
        yield
    finally:
        for process in helpers:
            process.join()
        torch.set_num_threads(threads)


def _help(number: int, open_fitting: OpenFitting, workers: int, trust: bool, trained_len: int | None) -> None:
    """One more worker: it searches and measures; the first worker writes the answer, and reports an interrupt."""
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    with trusting(trust), trained_to(trained_len), suppress(KeyboardInterrupt):
        fitting = open_fitting()
        fitting.leads = False
        if not fitting.search():
            fitting.judge_share(number)
