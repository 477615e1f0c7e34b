"""An engine without a model: it repeats the prompt's tokens, at a pace that a test sets, and keeps a record."""

import asyncio
import copy
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace

from transformers import AutoTokenizer

from ropewalk import Facts, parse
from ropewalk.errors import DoesNotFit
from ropewalk.models import DEFAULT
from ropewalk.serve.generation.request import (
    Delta,
    QueueFull,
    SessionBusy,
    SessionGone,
    SessionState,
    State,
    Token,
    Usage,
)

FACTS = Facts(trained_len=512, head_dim=64, heads=4, layers=6)
LINES = {"rerope+log_n": None, "bare": 512, "yarn:factor=4": 2048, "streaming:window=252,n_sink=4": None}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def served(line):
    extension = parse("rope" if line == "bare" else line, trained_len=512, layers=6)
    return SimpleNamespace(extension=extension, facts=FACTS, carried=LINES[line])


@cache
def carried_tokenizer():
    return AutoTokenizer.from_pretrained(DEFAULT)


def tokenizer(template=None):
    read = copy.deepcopy(carried_tokenizer())
    read.chat_template = template
    return read


class FakeAnswer:
    def __init__(self, engine, question):
        self.engine, self.question = engine, question
        self.stopped = asyncio.Event()
        self.finished, self.made = False, []
        engine.open.add(self)

    def cancel(self):
        if not self.finished:
            self.engine.cancelled.append(self.question)
        self.stopped.set()

    async def __aiter__(self):
        try:
            async for delta in self.deltas():
                yield delta
        finally:
            self.finished = True
            self.engine.open.discard(self)

    async def deltas(self):
        question, engine = self.question, self.engine
        if engine.failure is not None:
            raise engine.failure
        ids = question.prompts[0]
        prompt = tuple(Token(id, None if n == 0 else -1.0) for n, id in enumerate(ids))
        prompt = prompt if question.prompt_logprobs else ()
        await self.wait(engine.before_first)
        count, says = question.sampling.max_tokens, ids
        if engine.answer is not None:
            says = engine.tokenizer(engine.answer)["input_ids"]
            count = len(says)
        for n in range(count):
            if self.stopped.is_set():
                yield Delta("", (), "cancelled", self.usage(n))
                return
            token = self.token(says[n % len(says)])
            self.made.append(token.id)
            engine.written += 1
            yield Delta(engine.tokenizer.decode([token.id]), (token,), prompt=prompt if n == 0 else ())
            await self.wait(engine.pace)
        reason = "length" if engine.answer is None else "stop"
        usage = self.usage(count)
        if question.session is not None:
            state = SessionState(usage.session_tokens, usage.forgotten_tokens, question.said, tuple(self.made))
            engine.sessions[question.session] = state
        yield Delta("", (), reason, usage, prompt=prompt if count == 0 else ())

    def token(self, id):
        wanted = self.question.sampling.logprobs
        if wanted is None:
            return Token(id)
        return Token(id, -0.5, tuple((id + n, -0.5 - n) for n in range(wanted)))

    def usage(self, written):
        question = self.question
        read = len(question.prompts[0])
        if question.session is None:
            return Usage(read, written, self.engine.cached)
        total = (question.after.tokens if question.after else 0) + read + written
        return Usage(read, written, 0, total, max(0, total - 256))

    async def wait(self, seconds):
        if seconds:
            try:
                await asyncio.wait_for(self.stopped.wait(), seconds)
            except asyncio.TimeoutError:
                return
        else:
            await asyncio.sleep(0)


@dataclass(eq=False)
class FakeEngine:
    template: str | None = None
    pace: float = 0.0
    before_first: float = 0.0
    room: int = 100
    capacity: int = 100
    cached: int = 0
    failure: Exception | None = None
    name: str = "default"
    asked: list = field(default_factory=list)
    cancelled: list = field(default_factory=list)
    open: set = field(default_factory=set)
    sessions: dict = field(default_factory=dict)
    gone: set = field(default_factory=set)
    answer: str | None = None  # what is written; the prompt's own tokens where there is none
    written: int = 0
    closed: float | None = None

    def __post_init__(self):
        self.tokenizer = tokenizer(self.template)
        self.extensions = {line: served(line) for line in LINES}

    def ask(self, question):
        if len(self.open) >= self.room:
            raise QueueFull("full")
        if question.session in self.gone and question.after:
            raise SessionGone(question.session)
        self.gone.discard(question.session)
        if question.session and any(answer.question.session == question.session for answer in self.open):
            raise SessionBusy(question.session)
        most = self.extensions[question.extension].carried
        length = max(map(len, question.prompts)) + question.sampling.max_tokens
        if most is not None and length > most:
            raise DoesNotFit("max_tokens", f"at most {most} with the text", length)
        self.asked.append(question)
        return FakeAnswer(self, question)

    def state(self):
        return State(len(self.open), 0, 1000, 4096, len(self.sessions), 7, 3, self.written, 11)

    def session_state(self, session):
        if session in self.gone:
            raise SessionGone(session)
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
