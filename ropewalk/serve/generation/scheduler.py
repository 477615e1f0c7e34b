"""Continuous batching: what is computed in the next step, and for whom.

A request joins when there is room for all that it may write, so none is ever thrown out. Each step computes the next
token of every answer, and chunks of the prompts that are being read. The prompt of which least was read goes first, so
a short one does not wait for a long one, and the first chunk never waits. Later chunks are paid back: after each second
spent on them, answers are written alone for a second and a half.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from ropewalk.serve.generation.generation import Generation, is_last
from ropewalk.serve.generation.model import Part, ServedModel
from ropewalk.serve.generation.pages import PagedText
from ropewalk.serve.generation.request import QueueFull, Token

PAID_BACK = 1.5  # seconds of steps without prompts, for each second that reading took
BESIDE = 512  # tokens of new prompts in a step in which answers are being written; or one chunk of another
PROMPT_TOKENS = 2048  # prompt tokens of a step in which no answer is being written

Result = tuple[Generation, Token | Exception]


class Work(NamedTuple):
    """One part of a step: a text, its new tokens, and whether they are of a prompt."""

    generation: Generation
    text: PagedText
    ids: list[int]
    prompt: bool


class Scheduler:
    """The answers that are being written, and those that wait."""

    def __init__(self, model: ServedModel, *, max_running: int, evict: Callable[[], bool]) -> None:
        self.model, self.max_running, self._evict = model, max_running, evict
        self.running: list[Generation] = []
        self.waiting: deque[Generation] = deque()
        self.steps = self.prompt_tokens = self.completion_tokens = 0
        self._debt = 0.0  # seconds of steps without prompts that must come before more prompts are read
        self._plain = 0.0  # seconds of a step without prompts

    def step(self) -> Iterator[Result]:
        """Compute one step: the new tokens of answers, or why an answer fails."""
        yield from self._drop_cancelled()
        yield from self._admit()
        work = self._choose_work()
        if not work:
            return
        before = time.perf_counter()
        self._compute(work)
        results = self._choose_tokens([generation for generation in self.running if generation.ready])
        self._account(time.perf_counter() - before, work)
        for generation, token in results:
            if is_last(token):
                self.running.remove(generation)
            yield generation, token

    def _drop_cancelled(self) -> Iterator[Result]:
        for generation in [one for one in (*self.running, *self.waiting) if one.cancelled]:
            (self.running if generation in self.running else self.waiting).remove(generation)
            yield generation, generation.end()

    def _admit(self) -> Iterator[Result]:
        """Let requests join in their order, as long as there is room. Sessions that answer nothing make room."""
        while self.waiting and len(self.running) < self.max_running:
            first = self.waiting[0]
            if sum(one.pages_needed for one in (*self.running, first)) <= len(self.model.pool.free):
                self.running.append(self.waiting.popleft())
            elif not self._evict():
                # Where nothing runs, sessions whose turns wait hold the memory: the last to come is refused.
                holding = [one for one in self.waiting if one is not first and one.held]
                if holding and not self.running:
                    self.waiting.remove(holding[-1])
                    yield holding[-1], QueueFull("no cache memory is left: sessions with waiting requests hold it all")
                return

    def _choose_work(self) -> list[Work]:
        """The parts of the next step."""
        writing = [one for one in self.running if one.reading is None]
        work = [Work(one, text, text.unread[:1], prompt=False) for one in writing for text in one.texts]
        reading = sorted((one for one in self.running if one.reading is not None), key=lambda one: one.attained)
        if writing and self._debt > 0:
            reading = [one for one in reading if not one.attained]
        room = BESIDE if writing else PROMPT_TOKENS
        for one in reading:
            for text in one.texts:
                if room <= 0:
                    return work
                if text is one.reading or (not writing and text.unread):
                    ids = text.chunk()
                    work.append(Work(one, text, ids, prompt=True))
                    room -= BESIDE if writing and one.attained else len(ids)
        return work

    def _compute(self, work: list[Work]) -> None:
        parts = []
        for generation, text, ids, _ in work:
            pages = text.make_room(len(ids))
            wanted = slice(None) if generation.request.prompt_logprobs else slice(-1, None)
            parts.append(Part(text.extension, ids, text.length + len(ids), pages, wanted))
        for (generation, text, ids, prompt), logits_tv in zip(work, self.model.step(parts), strict=True):
            generation.read(text, logits_tv, ids)
            generation.attained += len(ids) * prompt
            self.prompt_tokens += len(ids) * prompt
        self.steps += 1

    def _choose_tokens(self, ready: list[Generation]) -> list[Result]:
        """The next tokens; those that are only the largest logit in one go. A failure is one answer's alone."""
        plain = [one for one in ready if one.sampler.plain and len(one.texts) == 1]
        largest = torch.stack([one.logits[0] for one in plain]).argmax(-1).tolist() if plain else []  # type: ignore[misc]
        ids = dict(zip(plain, largest, strict=True))
        results: list[Result] = []
        for one in ready:
            try:
                results.append((one, one.choose(ids.get(one))))
            except Exception as failure:
                results.append((one, failure))
        self.completion_tokens += len(ready)
        return results

    def _account(self, seconds: float, work: list[Work]) -> None:
        """Pay back the time that prompts took by steps without prompts."""
        if any(part.prompt for part in work):
            waited = not all(part.prompt for part in work)
            self._debt += PAID_BACK * (seconds - self._plain) if waited else 0.0
            return
        self._debt = max(0.0, self._debt - seconds)
        self._plain = seconds if not self._plain else 0.9 * self._plain + 0.1 * seconds
