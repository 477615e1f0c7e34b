"""The engine: a thread that computes steps, and the answers that an event loop reads.

Everything that a step touches belongs to the thread. The event loop hands work over through a queue, and gets all
tokens of a step in one call.
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import torch

from ropewalk.attention.scoped import scoped
from ropewalk.equation import reference_weights
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.runtime.layer import LISTENER
from ropewalk.hf.use.contexts import end_tokens
from ropewalk.serve.generation.generation import Generation, Queue, is_last
from ropewalk.serve.generation.model import Part, ServedExtension, ServedModel
from ropewalk.serve.generation.pages import PagedText, Sessions
from ropewalk.serve.generation.request import CANCELLED, EngineState, QueueFull, Request, Sampling, SessionState, Token
from ropewalk.serve.generation.scheduler import Scheduler

Result = TypeVar("Result")
SHORTER = "shorten the text, lower max_tokens, or use another extension"
OMP_PAUSE_SOFT = 1  # the thread may compute again, with new workers


class Engine:
    """Answers requests to one model under several extensions.

    engine = Engine(model, tokenizer, name="default")
    engine.start()
    async for token in engine.generate(Request("bare", (tuple(ids),), Sampling(max_tokens=20))):
        print(token.text)
    await engine.close()
    """

    def __init__(
        self, model: ServedModel, tokenizer: Any, *, name: str, max_running: int = 32, max_waiting: int = 256
    ) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.capacity = max_running + max_waiting  # the answers that may be asked for at once
        self.extensions: Mapping[str, ServedExtension] = model.extensions
        self._model, self._sessions = model, Sessions()
        self._scheduler = Scheduler(model, max_running=max_running, evict=self._sessions.evict)
        self._ends = frozenset(end_tokens(model.host, tokenizer))
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._open: set[Generation] = set()  # asked for, and not finished
        self._loop: asyncio.AbstractEventLoop  # that of the last caller: answers are read in one loop
        self._closing = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="ropewalk-engine", daemon=True)

    # In the event loop.

    def start(self) -> None:
        """Begin to compute. The calling thread should not compute from now on: the two would share the cores."""
        release_workers()
        self._thread.start()

    def generate(self, request: Request, queue: Queue | None = None) -> Generation:
        """Begin an answer. Its tokens, or a refusal, come by iterating over it or by a queue that several share."""
        self._require_open()
        if len(self._open) >= self.capacity:
            raise QueueFull(f"{len(self._open)} requests are running or waiting, the most allowed")
        self._loop = asyncio.get_running_loop()
        generation = Generation(request, queue)
        self._open.add(generation)
        self._work.put(lambda: self._begin(generation))
        return generation

    def state(self) -> EngineState:
        """What the engine is doing."""
        scheduler, pool = self._scheduler, self._model.pool
        running = len(scheduler.running)
        return EngineState(
            running=running,
            waiting=max(0, len(self._open) - running),
            cache_bytes=(pool.count - len(pool.free)) * pool.page_bytes,
            cache_limit=pool.count * pool.page_bytes,
            sessions=len(self._sessions),
            prompt_tokens=scheduler.prompt_tokens,
            completion_tokens=scheduler.completion_tokens,
            steps=scheduler.steps,
        )

    def session_state(self, session: str) -> SessionState | None:
        """A session after its last complete turn; None where there is none of this name."""
        return self._sessions.state(session)

    async def drop_session(self, session: str) -> bool:
        """End a session; whether there was one."""
        return await self._in_thread(lambda: self._sessions.drop(session))

    async def losses(self, extension: str, ids: Sequence[int]) -> list[float | None]:
        """The loss of every token in nats, None for the first."""
        request = Request(extension, (tuple(ids),), Sampling(0, temperature=0, logprobs=0), prompt_logprobs=True)
        generation = self.generate(request)
        try:
            async for _ in generation:
                pass
        finally:
            generation.cancel()  # where nobody waits any more
        return [None if token.logprob is None else -token.logprob for token in generation.prompt]

    async def attention(self, extension: str, ids: Sequence[int], layer: int, head: int) -> list[list[float]]:
        """The attention weights of one head over a text: row i has i + 1 numbers.

        Args:
            extension: one of `extensions`.
            ids: the tokens of the text.
            layer: the number of the layer.
            head: the number of the query head.
        """
        self._require_open()
        return await self._in_thread(lambda: self._weights(extension, list(ids), layer, head))

    async def close(self, *, drain: float = 0.0) -> None:
        """Refuse new requests, finish the running ones for so many seconds, and stop."""
        self._closing = True
        end = time.monotonic() + drain
        while self._open and time.monotonic() < end:
            await asyncio.sleep(0.02)
        for generation in tuple(self._open):
            generation.cancel()
        if self._thread.is_alive():
            await self._in_thread(self._stop)  # after a step that ends what was cancelled
            await asyncio.to_thread(self._thread.join)

    async def _in_thread(self, call: Callable[[], Result]) -> Result:
        """The result of a call in the engine's thread, between two steps."""
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as failure:
                done.set_exception(failure)

        self._work.put(run)
        return await asyncio.wrap_future(done)

    def _put(self, results: Sequence[tuple[Generation, Token | BaseException]]) -> None:
        for generation, token in results:
            generation.put(token)
            if generation.finished:
                self._open.discard(generation)

    def _require_open(self) -> None:
        if self._closing:
            raise QueueFull("the server is stopping")

    # In the engine's thread.

    def _run(self) -> None:
        while not self._stopped:
            if not self._scheduler.running and not self._scheduler.waiting:
                self._work.get()()
            while not self._work.empty():
                self._work.get()()
            self._step()

    def _step(self) -> None:
        """Compute a step. What it has ended before it fails is ended all the same."""
        results: list[tuple[Generation, Token | Exception]] = []
        failed: list[tuple[Generation, Token | Exception]] = []
        try:
            for result in self._scheduler.step():
                results.append(result)
        except Exception as failure:
            running, waiting = self._scheduler.running, self._scheduler.waiting
            failed = [(generation, failure) for generation in (*running, *waiting)]
            running.clear()
            waiting.clear()
        for generation, token in (*results, *failed):
            if is_last(token):
                self._finish(generation, whole=isinstance(token, Token) and token.finish_reason != CANCELLED)
        self._post([*results, *failed])

    def _stop(self) -> None:
        self._stopped = True

    def _begin(self, generation: Generation) -> None:
        """Let a request wait for its turn, or refuse it."""
        request = generation.request
        try:
            for ids in request.prompts:
                self._require_known(ids)
            longest = max(map(len, request.prompts)) + request.sampling.max_tokens
            if request.session is None:
                texts = [self._text(request.extension, longest, ids) for ids in request.prompts]
            else:
                new = self._text(request.extension, longest, before=self._sessions.text(request.session))
                texts = [self._sessions.enter(request, new)]
            generation.begin(texts, self.tokenizer, self._ends, self._model.device)
            self._require_fit(generation)
        except Exception as refusal:
            self._finish(generation, whole=False)
            self._post([(generation, refusal)])
        else:
            self._scheduler.waiting.append(generation)

    def _require_fit(self, generation: Generation) -> None:
        """Refuse texts that grow beyond what the extension, or the memory, carries."""
        request, pool = generation.request, self._model.pool
        answer, most = request.sampling.max_tokens, self.extensions[request.extension].max_len
        length = max(text.total for text in generation.texts) + answer
        together = f"the text has {length - answer:,} tokens and the answer may have {answer:,}, {length:,} in total"
        if most is not None and length > most and not request.prompt_logprobs:
            raise DoesNotFit.because("max_tokens", f"{together}; {request.extension} carries {most:,}", remedy=SHORTER)
        before = self._sessions.text(request.session)
        again = before.held if before and before.extension != generation.texts[0].extension else 0  # until it is over
        if again + generation.held + generation.pages_needed > pool.count:
            sentence = f"{together}; the server's --cache-memory has room for about {pool.count * pool.size:,}"
            raise DoesNotFit.because("max_tokens", sentence, remedy=SHORTER)

    def _text(
        self, extension: str, length: int, ids: Sequence[int] = (), *, before: PagedText | None = None
    ) -> PagedText:
        """A text of so many tokens with its answer, under what computes it. A session never goes back to less."""
        by_length = self.extensions[extension].by_length
        names, computing = [name for _, name in by_length], extension
        if by_length:
            total = length + (before.total if before else 0)
            enough = sum(most < total for most, _ in by_length[:-1])
            had = names.index(before.extension) if before and before.extension in names else 0
            computing = names[max(enough, had)]
        retention = self._model.computed[computing].retention
        return PagedText(self._model.pool, retention, ids, extension=computing, kept=bool(names))

    def _finish(self, generation: Generation, *, whole: bool) -> None:
        """Release the pages of its texts; a session keeps them where its answer is complete."""
        session = generation.request.session
        if session is not None and generation.texts:  # else it could not enter the session
            self._sessions.leave(session, generation.state if whole else None)
        for text in generation.texts if session is None else ():
            text.close()

    def _post(self, results: Sequence[tuple[Generation, Token | BaseException]]) -> None:
        """One call into the event loop."""
        if results:
            self._loop.call_soon_threadsafe(self._put, results)

    def _require_known(self, ids: Sequence[int]) -> None:
        """Refuse tokens that the model does not have."""
        words = self._model.words
        if not ids:
            raise InvalidValue("prompt", "at least one token", "none")
        if not 0 <= min(ids) <= max(ids) < words:
            raise InvalidValue("prompt", f"tokens from 0 to {words - 1}", f"{min(ids)} to {max(ids)}")

    def _weights(self, extension: str, ids: list[int], layer: int, head: int) -> list[list[float]]:
        """The weights of one head over a text that is read at once."""
        heard: list[Any] = []

        def listen(one: Any, q_bhid: torch.Tensor, k_bgjd: torch.Tensor, _: Any) -> None:
            if one.depth == layer:
                heard.append((one, q_bhid.clone(), k_bgjd.clone()))

        self._require_known(ids)
        text = self._text(extension, len(ids))
        try:
            with scoped(LISTENER, listen):
                self._model.step([Part(text.extension, ids, len(ids), text.make_room(len(ids)))])
            one, q_bhid, k_bgjd = heard[0]
            weights = reference_weights(q_bhid, k_bgjd, one.extension, one.facts, weights=one.weights)[0, head]
        finally:
            text.close()
        return [[round(x, 5) for x in row[: n + 1]] for n, row in enumerate(weights.tolist())]


def release_workers() -> None:
    """End OpenMP's workers of the calling thread: with more workers than cores, a step takes twice as long."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(torch._C.__file__).omp_pause_resource_all(OMP_PAUSE_SOFT)
