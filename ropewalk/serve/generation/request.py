"""What is asked of the engine, and what it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ropewalk.methods.decoding import Decoding  # importing it takes a second, and a server binds before that


CANCELLED = "cancelled"  # the reason of an answer that nobody wanted any more


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen, and when the answer ends."""

    max_tokens: int
    temperature: float = 1.0  # 0 takes the likeliest token
    top_p: float = 1.0
    top_k: int = 0  # 0 takes all
    seed: int | None = None  # None draws one
    stop: tuple[str, ...] = ()  # texts that end the answer, and are not part of it
    ignore_eos: bool = False
    logprobs: int | None = None  # how many alternatives of every token are returned; None returns no log-probabilities


class SessionState(NamedTuple):
    """A session after its last whole turn. One record: what it has read, and of which conversation that is."""

    tokens: int
    forgotten: int  # of these, which no later token can see
    said: Any = None  # what the caller keeps of the turns, such as messages
    answer: tuple[int, ...] = ()  # the tokens of the last answer, which the session has read after that


@dataclass(frozen=True)
class Request:
    """One request to the engine.

    `extension` is one of `Engine.extensions`. `prompts` has one text as token ids; several are read separately, and
    every token is chosen from all of them by `decoding`: the last is the question without a context. Under a `session`
    the prompt continues what the session has read before, the last answer included: `after` is its state then, None
    begins it. `said` is kept with it once the answer is whole.
    """

    extension: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling
    session: str | None = None
    decoding: Decoding | None = None
    prompt_logprobs: bool = False  # also the log-probabilities of the prompt's tokens
    after: SessionState | None = None
    said: Any = None


class Token(NamedTuple):
    """One token, its log-probability, and the likeliest tokens in its place, if they were asked for."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Usage(NamedTuple):
    """What an answer cost."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompt, whose keys were there already
    session_tokens: int | None = None  # all that the session has read
    forgotten_tokens: int | None = None  # of these, which no later token can see


class Delta(NamedTuple):
    """New text of an answer; the last delta has the reason and the usage.

    Text that may be the beginning of a stop text is held back until it is known. `tokens` are those read so far that
    no delta had before, so a delta may have tokens without text.
    """

    text: str
    tokens: tuple[Token, ...]
    finish_reason: str | None = None  # "stop", "length" or CANCELLED
    usage: Usage | None = None
    prompt: tuple[Token, ...] = ()  # in the first delta, where prompt_logprobs were asked for


class Answer(Protocol):
    """The deltas of an answer while they are written: `async for delta in answer`."""

    def __aiter__(self) -> AsyncIterator[Delta]:
        """The deltas; a failure of the engine is raised here."""
        ...

    def cancel(self) -> None:
        """Stop writing within one token. Nothing happens to a finished answer."""
        ...


class QueueFull(Exception):
    """There is no room for another request now; its message says where."""


class SessionGone(Exception):
    """The session was evicted, or ended."""


class SessionBusy(Exception):
    """The session is answering another request, or has answered one since its state was asked for."""


class State(NamedTuple):
    """What the engine is doing now."""

    running: int
    waiting: int
    cache_bytes: int  # in use
    cache_limit: int
    sessions: int
    prompt_tokens: int  # since the start, and so the next ones
    cached_tokens: int
    completion_tokens: int
    steps: int
