"""Continuous batching: what is computed in the next step, and for whom.

Requests join when there is room for all that they may write, so none is ever thrown out. Each step computes the next
token of every answer, and chunks of the prompts that are being read. Who was read least goes first, so a short prompt
does not wait for a long one, and the first chunk of a prompt never waits. After other chunks, answers are written for
half as long again as the chunks took.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from ropewalk.serve.generation.memory.page_space import PageSpace
from ropewalk.serve.generation.model.served_model import Part, ServedModel
from ropewalk.serve.generation.request import Delta, QueueFull
from ropewalk.serve.generation.run import Run
from ropewalk.serve.generation.sequence import Sequence

PAID_BACK = 1.5  # seconds of plain steps for each second that reading took
BESIDE = 512  # tokens of new prompts in a step in which answers are being written; or one chunk of another
PROMPT_TOKENS = 2048  # prompt tokens of a step in which no answer is being written


class Work(NamedTuple):
    """One part of a step: a text of a run, its new tokens, and whether they are of a prompt."""

    run: Run
    sequence: Sequence
    ids: list[int]
    prompt: bool


class Scheduler:
    """The answers that are being written, and those that wait."""

    def __init__(
        self, model: ServedModel, spaces: dict[str, PageSpace], *, max_running: int, evict: Callable[[], bool]
    ) -> None:
        self.model, self.spaces, self.max_running, self._evict = model, spaces, max_running, evict
        self.running: list[Run] = []
        self.waiting: deque[Run] = deque()
        self.steps = self.prompt_tokens = self.completion_tokens = 0
        self._debt = 0.0  # seconds of plain steps that must come before prompts are read on
        self._plain = 0.0  # seconds of a step without prompts

    def step(self) -> Iterator[tuple[Run, Delta | Exception]]:
        """Compute one step; the new deltas of answers, or why an answer fails."""
        yield from self._cancelled()
        yield from self._admit()
        work = self._work()
        if not work:
            return
        before = time.perf_counter()
        self._compute(work)
        chosen = self._chosen([run for run in self.running if run.ready])
        self._account(time.perf_counter() - before, work)
        for run, delta in chosen:
            if isinstance(delta, Exception) or delta.finish_reason is not None:
                self.running.remove(run)
            yield run, delta

    def never_fits(self, run: Run) -> int | None:
        """The tokens that all memory could hold, where the run needs more."""
        space, pool = self.spaces[run.extension], self.model.pool
        most = pool.count * space.per_slab
        return most * pool.size if run.held + run.pages_needed > most else None

    def _cancelled(self) -> Iterator[tuple[Run, Delta]]:
        for run in [run for run in (*self.running, *self.waiting) if run.cancelled]:
            (self.running if run in self.running else self.waiting).remove(run)
            yield run, run.cancel()

    def _admit(self) -> Iterator[tuple[Run, Exception]]:
        """Let requests join in their order, as long as there is room; sessions that rest make room."""
        while self.waiting and len(self.running) < self.max_running:
            run = self.waiting[0]
            run.reuse()
            if self._fits([*self.running, run]):
                self.running.append(self.waiting.popleft())
                continue
            run.give_up_reuse()
            if not self._evict():
                yield from self._make_way(run)
                return

    def _make_way(self, first: Run) -> Iterator[tuple[Run, Exception]]:
        """Where nothing runs, sessions whose turns wait hold the memory: the last to come is refused, and rests."""
        holding = [run for run in self.waiting if run is not first and run.held]
        if holding and not self.running:
            self.waiting.remove(holding[-1])
            yield holding[-1], QueueFull("no memory is left beside the sessions whose requests wait")

    def _fits(self, runs: list[Run]) -> bool:
        """Whether the pages that runs may still need can be taken, extension by extension."""
        pool, missing, needed = self.model.pool, 0, Counter[str]()
        for run in runs:
            needed[run.extension] += run.pages_needed
        for name, space in self.spaces.items():
            if needed[name] > space.idle:
                missing += -(-(needed[name] - space.idle) // space.per_slab)
            else:
                missing -= min(space.returnable, (space.idle - needed[name]) // space.per_slab)
        return missing <= len(pool.free)

    def _work(self) -> list[Work]:
        """The parts of the next step."""
        writing = [run for run in self.running if run.reading is None]
        work = [Work(run, one, one.unread[:1], prompt=False) for run in writing for one in run.sequences]
        reading = sorted((run for run in self.running if run.reading is not None), key=lambda run: run.attained)
        if writing and self._debt > 0:
            reading = [run for run in reading if not run.attained]
        room = BESIDE if writing else PROMPT_TOKENS
        for run in reading:
            for one in run.sequences:
                if room <= 0:
                    return work
                if one is run.reading or (not writing and one.unread):
                    ids = one.chunk()
                    work.append(Work(run, one, ids, prompt=True))
                    room -= BESIDE if writing and run.attained else len(ids)
        return work

    def _compute(self, work: list[Work]) -> None:
        parts = []
        for run, one, ids, _ in work:
            pages = one.make_room(len(ids))
            wanted = slice(None) if run.request.prompt_logprobs else slice(-1, None)
            parts.append(Part(run.extension, ids, one.length + len(ids), pages, wanted))
        for (run, one, ids, prompt), logits_tv in zip(work, self.model.step(parts), strict=True):
            run.read(one, logits_tv, ids)
            run.attained += len(ids) * prompt
            self.prompt_tokens += len(ids) * prompt
        self.steps += 1

    def _chosen(self, runs: list[Run]) -> list[tuple[Run, Delta | Exception]]:
        """The next tokens; those that are only the largest logit in one go."""
        plain = [run for run in runs if run.chooser.plain and len(run.sequences) == 1]
        likeliest = torch.stack([run.logit_v for run in plain]).argmax(-1).tolist() if plain else []  # type: ignore[misc]
        tokens = dict(zip(map(id, plain), likeliest, strict=True))
        deltas = [(run, _delta_of(run, tokens.get(id(run)))) for run in runs]
        self.completion_tokens += len(runs)
        return [(run, delta) for run, delta in deltas if delta is not None]

    def _account(self, seconds: float, work: list[Work]) -> None:
        """What prompts took beyond a plain step is paid back by plain steps."""
        if any(part.prompt for part in work):
            waited = not all(part.prompt for part in work)
            self._debt += PAID_BACK * (seconds - self._plain) if waited else 0.0
            return
        self._debt = max(0.0, self._debt - seconds)
        self._plain = seconds if not self._plain else 0.9 * self._plain + 0.1 * seconds


def _delta_of(run: Run, token: int | None) -> Delta | Exception | None:
    """The next delta of an answer; a failure is this answer's alone."""
    try:
        return run.choose(token)
    except Exception as failure:
        return failure
