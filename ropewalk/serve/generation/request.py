"""What the engine is asked, and what it yields. Nothing here imports torch: a server binds before that is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ropewalk.methods.decoding import Decoding

CANCELLED = "cancelled"  # why an answer ended that nobody wanted any more


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
    logprobs: int | None = None  # how many alternatives come with each token; None returns no log-probabilities


class SessionState(NamedTuple):
    """A session after its last complete turn."""

    tokens: int  # read so far
    forgotten: int  # of these, tokens that no later token can see
    said: Any = None  # what the caller keeps of the turns, such as messages
    answer: tuple[int, ...] = ()  # the tokens of the last answer; the session has read them after `said`


@dataclass(frozen=True)
class Request:
    """One request to the engine.

    `extension` is one of `Engine.extensions`. `prompts` has one text as token ids. Several are read separately, and
    `decoding` chooses each token from all of them; the last one is the question without a context.

    With a `session`, the prompt continues what the session has read. `after` is the state that the prompt was made for;
    None begins the session. `said` is stored with the session once the answer is complete.
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
    """One token of an answer, with the text that is certain since: text that may begin a stop text comes later.

    The last token has a `finish_reason`. Its id is None where the answer ends without another token.
    """

    id: int | None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens in its place
    text: str = ""
    finish_reason: str | None = None  # "stop", "length" or CANCELLED


class Usage(NamedTuple):
    """What an answer cost."""

    prompt_tokens: int
    completion_tokens: int
    session_tokens: int | None = None  # all that the session has read
    forgotten_tokens: int | None = None  # of these, tokens that no later token can see
    extension: str | None = None  # what computed it, where that was chosen for the request


class EngineState(NamedTuple):
    """What the engine is doing now. The last three count from its start."""

    running: int
    waiting: int
    cache_bytes: int  # in use
    cache_limit: int
    sessions: int
    prompt_tokens: int
    completion_tokens: int
    steps: int


class QueueFull(Exception):
    """There is no room for another request now; the message says where."""


class SessionGone(Exception):
    """The session was evicted, or ended."""


class SessionBusy(Exception):
    """The session is answering another request, or has answered one since its state was read."""
