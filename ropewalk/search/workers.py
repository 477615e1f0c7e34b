"""More processes of one search on this machine: each opens the study for itself, and has its share of the cores."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.synchronize import Event

import torch

from ropewalk.placement import Placement, placing, wanted_placement
from ropewalk.revision import at_revision, wanted_revision
from ropewalk.search.fitting import Fitting
from ropewalk.trained_to import stated, trained_to
from ropewalk.trust import trusted, trusting

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
    settings = (stop, open_fitting, workers, trusted(), stated(), wanted_revision(), wanted_placement())
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


def _help(
    number: int,
    stop: Event,
    open_fitting: OpenFitting,
    workers: int,
    trust: bool,
    trained_len: int | None,
    revision: str,
    placement: Placement,
) -> None:
    """One more worker: it searches and measures; the first worker writes the answer, and reports an interrupt."""
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    scopes = trusting(trust), trained_to(trained_len), at_revision(revision), placing(*placement)
    with ExitStack() as inside, suppress(KeyboardInterrupt):
        for scope in scopes:
            inside.enter_context(scope)
        fitting = open_fitting()
        fitting.leads, fitting.stopped = False, stop.is_set
        if not fitting.search():
            fitting.judge_share(number)
