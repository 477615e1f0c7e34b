"""The engine: a thread that computes steps, and the answers that other threads read.

Everything that a step touches belongs to the thread. Others hand over work by a queue, and get deltas in their event
loop: all deltas of a step in one call.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from ropewalk.equation import reference_weights
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.runtime.layer import LISTENER
from ropewalk.hf.use.contexts import end_tokens
from ropewalk.scoped import scoped
from ropewalk.serve.generation.memory.page_space import PageSpace
from ropewalk.serve.generation.model.served_extension import ServedExtension
from ropewalk.serve.generation.model.served_model import Part, ServedModel
from ropewalk.serve.generation.model.worker_threads import release_workers
from ropewalk.serve.generation.request import (
    CANCELLED,
    Answer,
    Delta,
    QueueFull,
    Request,
    Sampling,
    SessionState,
    State,
)
from ropewalk.serve.generation.run import Run
from ropewalk.serve.generation.sampling import Chooser
from ropewalk.serve.generation.scheduler import Scheduler
from ropewalk.serve.generation.sequence import Sequence as Text
from ropewalk.serve.generation.sessions import Sessions
from ropewalk.serve.generation.text import TextWriter

Result = TypeVar("Result")
SHORTER = "shorten the text, lower max_tokens, or take another extension"


def is_last(delta: Delta | BaseException) -> bool:
    """Whether nothing comes after it."""
    return isinstance(delta, BaseException) or delta.finish_reason is not None


class Writing:
    """An answer as its reader sees it: an iterator in the reader's event loop."""

    def __init__(self, engine: Engine, request: Request) -> None:
        self.request = request
        self._engine, self._loop = engine, asyncio.get_running_loop()
        self._deltas: asyncio.Queue[Delta | BaseException] = asyncio.Queue()
        self.run: Run | None = None
        self._finished = False

    async def __aiter__(self) -> AsyncIterator[Delta]:
        while not self._finished:
            delta = await self._deltas.get()
            if isinstance(delta, BaseException):
                self._finished = True
                raise delta
            self._finished = delta.finish_reason is not None
            yield delta

    def cancel(self) -> None:
        """Stop writing within one token."""
        self._engine.cancel(self)

    def put(self, delta: Delta | BaseException) -> None:
        """Called in the event loop."""
        self._deltas.put_nowait(delta)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where its deltas are read."""
        return self._loop


class Engine:
    """Answers questions about one model under several extensions.

    engine = Engine(model, tokenizer, name="default")
    engine.start()
    async for delta in engine.ask(Request("bare", (tuple(ids),), Sampling(max_tokens=20))):
        print(delta.text)
    await engine.close()
    """

    def __init__(
        self,
        model: ServedModel,
        tokenizer: Any,
        *,
        name: str,
        max_running: int = 32,
        max_waiting: int = 256,
    ) -> None:
        self.name, self.tokenizer, self.max_waiting = name, tokenizer, max_waiting
        self._model = model
        self._spaces = {key: PageSpace(model.pool, served.lanes) for key, served in model.extensions.items()}
        self._sessions = Sessions()
        self._scheduler = Scheduler(model, self._spaces, max_running=max_running, evict=self._sessions.evict)
        self._ends = frozenset(end_tokens(model.host, tokenizer))
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._answers: dict[Run, Writing] = {}
        self._open: set[Writing] = set()  # asked, and not finished
        self._closing = self._stopped = False
        self._cached_tokens = 0
        self._thread = threading.Thread(target=self._compute, name="ropewalk-engine", daemon=True)

    @property
    def extensions(self) -> Mapping[str, ServedExtension]:
        """The extensions by name."""
        return self._model.extensions

    def start(self) -> None:
        """Begin to compute. The calling thread should not compute from now on: the two would share the cores."""
        release_workers()
        self._thread.start()

    def ask(self, request: Request) -> Answer:
        """Begin an answer. What cannot be answered is refused here, or by the answer's iterator."""
        self._require_open()
        if len(self._open) >= self.capacity:
            raise QueueFull(f"{len(self._open)} requests are running or waiting, as many as may")
        writing = Writing(self, request)
        self._open.add(writing)
        self._work.put(lambda: self._begin(writing))
        return writing

    @property
    def capacity(self) -> int:
        """The answers that may be asked for at once."""
        return self._scheduler.max_running + self.max_waiting

    def state(self) -> State:
        """What the engine is doing."""
        scheduler, pool = self._scheduler, self._model.pool
        running = len(scheduler.running)
        return State(
            *(running, max(0, len(self._open) - running), pool.bytes_used, pool.count * pool.slab_bytes),
            *(len(self._sessions), scheduler.prompt_tokens, self._cached_tokens),
            *(scheduler.completion_tokens, scheduler.steps),
        )

    def session_state(self, session: str) -> SessionState | None:
        """A session after its last whole turn; None where there is none of this name."""
        return self._sessions.state(session)

    async def drop_session(self, session: str) -> bool:
        """End a session; whether there was one."""
        return await self._in_thread(lambda: self._sessions.drop(session))

    async def losses(self, extension: str, ids: Sequence[int]) -> list[float | None]:
        """The loss of every token in nats, None for the first."""
        request = Request(extension, (tuple(ids),), Sampling(0, temperature=0, logprobs=0), prompt_logprobs=True)
        prompt = [token async for delta in self.ask(request) for token in delta.prompt]
        return [None if token.logprob is None else -token.logprob for token in prompt]

    async def attention(self, extension: str, ids: Sequence[int], layer: int, head: int) -> list[list[float]]:
        """The attention weights of one head: row i has i + 1 numbers."""
        served = self._served(extension)
        for field, value, count in (("layer", layer, len(served.layers)), ("head", head, served.layers[0].facts.heads)):
            if not 0 <= value < count:
                raise InvalidValue(field, f"from 0 to {count - 1}", value)
        self._require_open()
        return await self._in_thread(lambda: self._weights(extension, list(ids), layer, head))

    async def close(self, *, drain: float = 0.0) -> None:
        """Refuse new questions, finish the running ones for so many seconds, and stop."""
        self._closing = True
        end = time.monotonic() + drain
        while self._open and time.monotonic() < end:
            await asyncio.sleep(0.02)
        for writing in tuple(self._open):
            writing.cancel()
        if self._thread.is_alive():
            await self._in_thread(self._stop)
            await asyncio.to_thread(self._thread.join)

    def cancel(self, writing: Writing) -> None:
        """Stop an answer."""
        self._work.put(lambda: self._cancel(writing))

    # In the engine's thread.

    def _compute(self) -> None:
        while not self._stopped:
            if not self._scheduler.running and not self._scheduler.waiting:
                self._work.get()()
            while not self._work.empty():
                self._work.get()()
            self._step()

    def _step(self) -> None:
        """Compute a step. What it has ended before it fails is ended all the same."""
        deltas: list[tuple[Run, Delta | Exception]] = []
        try:
            for delta in self._scheduler.step():
                deltas.append(delta)
        except Exception as failure:
            self._deliver(deltas)
            self._fail(failure)
        else:
            self._deliver(deltas)

    def _begin(self, writing: Writing) -> None:
        """Take a request over into the thread."""
        try:
            run = self._run(writing.request)
        except Exception as refusal:
            self._post([(writing, refusal)])
            return
        writing.run, self._answers[run] = run, writing
        self._scheduler.waiting.append(run)

    def _cancel(self, writing: Writing) -> None:
        if writing.run is not None:  # else it was refused
            writing.run.cancelled = True

    def _run(self, request: Request) -> Run:
        for ids in request.prompts:
            self._require_known(ids)
        sampling = request.sampling
        chooser = Chooser(sampling, request.decoding, self._model.device)
        writer = TextWriter(self.tokenizer, sampling.stop)
        texts = [self._text(request.extension, ids) for ids in request.prompts]
        if request.session is not None:
            texts = [self._sessions.enter(request, self._text(request.extension))]
        run = Run(request, texts, chooser, writer, self._ends)
        try:
            self._require_carried(run)
        except DoesNotFit:
            self._finish(run, whole=False)
            raise
        return run

    def _require_carried(self, run: Run) -> None:
        """Refuse texts that grow beyond what the extension, or the memory, carries."""
        length, name = run.longest, run.extension
        answer = run.request.sampling.max_tokens
        together = f"the text has {length - answer:,} tokens and the answer may have {answer:,}, together {length:,}"
        carried = self._served(name).carried
        if carried is not None and length > carried and not run.request.prompt_logprobs:
            raise DoesNotFit.because("max_tokens", f"{together}; {name} carries {carried:,}", remedy=SHORTER)
        most = self._scheduler.never_fits(run)
        if most is not None:
            sentence = f"{together}; the server's --cache-memory has room for about {most:,}"
            raise DoesNotFit.because("max_tokens", sentence, remedy=SHORTER)

    def _text(self, extension: str, ids: Sequence[int] = ()) -> Text:
        return Text(self._spaces[extension], self._served(extension).retention, ids)

    def _deliver(self, deltas: Sequence[tuple[Run, Delta | Exception]]) -> None:
        """Hand deltas over; finished runs release their pages."""
        for run, delta in deltas:
            if is_last(delta):
                self._finish(run, whole=isinstance(delta, Delta) and delta.finish_reason != CANCELLED)
            if isinstance(delta, Delta) and delta.usage:
                self._cached_tokens += delta.usage.cached_tokens
        self._post([(self._answers[run], delta) for run, delta in deltas])
        for run, delta in deltas:
            if is_last(delta):
                del self._answers[run]

    def _finish(self, run: Run, *, whole: bool) -> None:
        """Release the pages of its texts; a session keeps them where its answer is whole."""
        if run.request.session is not None:
            self._sessions.leave(run.request.session, run.state if whole else None)
            return
        for one in run.sequences:
            one.close()

    def _post(self, deltas: Sequence[tuple[Writing, Delta | BaseException]]) -> None:
        """One call into each event loop."""
        for loop in {writing.loop for writing, _ in deltas}:
            for_loop = [(writing, delta) for writing, delta in deltas if writing.loop is loop]
            loop.call_soon_threadsafe(self._put, for_loop)

    def _put(self, deltas: Sequence[tuple[Writing, Delta | BaseException]]) -> None:
        """In the event loop: every delta to its answer."""
        for writing, delta in deltas:
            if is_last(delta):
                self._open.discard(writing)
            writing.put(delta)

    def _fail(self, failure: Exception) -> None:
        """A step failed: all answers end with the failure, and their pages are released."""
        runs = [*self._scheduler.running, *self._scheduler.waiting]
        self._scheduler.running.clear()
        self._scheduler.waiting.clear()
        for run in runs:
            self._finish(run, whole=False)
        self._post([(self._answers.pop(run), failure) for run in runs])

    def _weights(self, extension: str, ids: list[int], layer: int, head: int) -> list[list[float]]:
        """The weights of one head over a text that is read at once."""
        heard: list[Any] = []

        def listen(one: Any, q_bhid: torch.Tensor, k_bgjd: torch.Tensor, _: Any) -> None:
            if one.depth == layer:
                heard.append((one, q_bhid.clone(), k_bgjd.clone()))

        self._require_known(ids)
        text = self._text(extension)
        try:
            with scoped(LISTENER, listen):
                self._model.step([Part(extension, ids, len(ids), text.make_room(len(ids)))])
            one, q_bhid, k_bgjd = heard[0]
            weights = reference_weights(q_bhid, k_bgjd, one.extension, one.facts, weights=one.weights)[0, head]
        finally:
            text.close()
        return [[round(x, 5) for x in row[: n + 1]] for n, row in enumerate(weights.tolist())]

    def _stop(self) -> None:
        self._stopped = True

    # In the event loop.

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

    def _served(self, extension: str) -> ServedExtension:
        return self._model.extensions[extension]

    def _require_open(self) -> None:
        if self._closing:
            raise QueueFull("the server is stopping")

    def _require_known(self, ids: Sequence[int]) -> None:
        """Refuse tokens that the model does not have."""
        words = self._model.words
        if not ids:
            raise InvalidValue("prompt", "at least one token", "none")
        if not 0 <= min(ids) <= max(ids) < words:
            raise InvalidValue("prompt", f"tokens from 0 to {words - 1}", f"{min(ids)} to {max(ids)}")
