"""An engine without a model: it repeats the prompt's tokens, at a pace that a test sets, and keeps a record."""

import asyncio
import contextlib
import copy
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace

from transformers import AutoTokenizer

from ropewalk import Facts, parse
from ropewalk.errors import DoesNotFit
from ropewalk.models import DEFAULT
from ropewalk.serve.generation.generation import Generation
from ropewalk.serve.generation.request import EngineState, QueueFull, SessionBusy, SessionState, Token, Usage

FACTS = Facts(trained_len=512, head_dim=64, heads=4, layers=6)
LINES = {"rerope+log_n": None, "bare": 512, "yarn:factor=4": 2048, "streaming:window=252,n_sink=4": None}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def served(line):
    extension = parse("rope" if line == "bare" else line, trained_len=512, layers=6)
    return SimpleNamespace(extension=extension, facts=FACTS, max_len=LINES[line], by_length=())


@cache
def own_tokenizer():
    return AutoTokenizer.from_pretrained(DEFAULT)


def tokenizer(template=None):
    read = copy.deepcopy(own_tokenizer())
    read.chat_template = template
    return read


class FakeGeneration(Generation):
    """Writes its tokens in a task of the event loop."""

    def __init__(self, engine, request, queue):
        super().__init__(request, queue)
        self.engine, self.stopped = engine, asyncio.Event()
        engine.open.add(self)
        self.task = asyncio.create_task(self.write())

    def cancel(self):
        if not self.stopped.is_set():
            self.engine.cancelled.append(self.request)
        self.stopped.set()

    async def write(self):
        try:
            async for token in self.tokens():
                self.put(token)
        except Exception as failure:
            self.put(failure)
        finally:
            self.engine.open.discard(self)

    async def tokens(self):
        request, engine, made = self.request, self.engine, []
        if engine.failure is not None:
            raise engine.failure
        ids = request.prompts[0]
        if request.prompt_logprobs:
            self.prompt = [Token(id, None if n == 0 else -1.0) for n, id in enumerate(ids)]
        await self.wait(engine.before_first)
        count, says = request.sampling.max_tokens, ids
        if engine.answer is not None:
            says = engine.tokenizer(engine.answer)["input_ids"]
            count = len(says)
        for n in range(count):
            if self.stopped.is_set():
                self.usage = self.usage_of(n)
                yield Token(None, finish_reason="cancelled")
                return
            token = self.token(says[n % len(says)])
            made.append(token.id)
            engine.written += 1
            yield token
            await self.wait(engine.pace)
        reason = "length" if engine.answer is None else "stop"
        self.usage = usage = self.usage_of(count)
        if request.session is not None:
            state = SessionState(usage.session_tokens, usage.forgotten_tokens, request.said, tuple(made))
            engine.sessions[request.session] = state
        yield Token(None, finish_reason=reason)

    def token(self, id):
        wanted, text = self.request.sampling.logprobs, self.engine.tokenizer.decode([id])
        if wanted is None:
            return Token(id, text=text)
        return Token(id, -0.5, tuple((id + n, -0.5 - n) for n in range(wanted)), text)

    def usage_of(self, written):
        request, read = self.request, len(self.request.prompts[0])
        if request.session is None:
            return Usage(read, written)
        total = (request.after.tokens if request.after else 0) + read + written
        return Usage(read, written, total, max(0, total - 256))

    async def wait(self, seconds):
        if seconds:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.stopped.wait(), seconds)
        else:
            await asyncio.sleep(0)


@dataclass(eq=False)
class FakeEngine:
    template: str | None = None
    pace: float = 0.0
    before_first: float = 0.0
    room: int = 100
    capacity: int = 100
    failure: Exception | None = None
    name: str = "default"
    asked: list = field(default_factory=list)
    cancelled: list = field(default_factory=list)
    open: set = field(default_factory=set)
    sessions: dict = field(default_factory=dict)
    answer: str | None = None  # what is written; the prompt's own tokens where there is none
    written: int = 0
    closed: float | None = None

    def __post_init__(self):
        self.tokenizer = tokenizer(self.template)
        self.extensions = {line: served(line) for line in LINES}

    def generate(self, request, queue=None):
        if len(self.open) >= self.room:
            raise QueueFull("full")
        if request.session and any(one.request.session == request.session for one in self.open):
            raise SessionBusy(request.session)
        most = self.extensions[request.extension].max_len
        length = max(map(len, request.prompts)) + request.sampling.max_tokens
        if most is not None and length > most:
            raise DoesNotFit("max_tokens", f"at most {most} with the text", length)
        self.asked.append(request)
        return FakeGeneration(self, request, queue)

    def state(self):
        return EngineState(len(self.open), 0, 1000, 4096, len(self.sessions), 7, self.written, 11)

    def session_state(self, session):
        return self.sessions.get(session)

    async def drop_session(self, session):
        return self.sessions.pop(session, None) is not None

    async def losses(self, extension, ids):
        await asyncio.sleep(self.pace)
        return [None, *(float(len(extension)) for _ in ids[1:])]

    async def attention(self, extension, ids, layer, head):
        return [[1 / (n + 1)] * (n + 1) for n in range(len(ids))]

    async def close(self, *, drain):
        self.closed = drain
        for answer in list(self.open):
            answer.cancel()
