"""What the routes share: settings, the phase of the server, its figures, the models and their tokenizer."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError
from ropewalk.hf.checkpoint.tokens import GrowingText
from ropewalk.serve.generation.request import EngineState
from ropewalk.serve.refusals import Refusal, unavailable
from ropewalk.serve.requests import Message, Prompt, names_a_file

if TYPE_CHECKING:  # with torch, which is loaded beside the server
    from ropewalk.serve.generation.engine import Engine
    from ropewalk.serve.generation.model import ServedExtension

FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)  # seconds
BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
COUNTERS = ("prompt_tokens", "completion_tokens", "steps")  # of the engine; the others are gauges
LONGEST_LINE = 500  # characters of an extension
SHORT = 4_000  # characters that are read within a few milliseconds
MOST_TOKENS = 1_000_000  # of one text
SLACK = 4  # a tokenizer may drop some of a text, such as white space
PIECE = 50_000  # characters that are counted at once
BORDERS = 2  # times the limit: pieces have a few tokens more than the whole

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """How the server treats its clients."""

    api_key: str | None = None
    allow_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # names by which requests may call the server; all where this is empty
    body_bytes: int = 10 * 2**20
    body_seconds: float = 30.0


class NamedModel(NamedTuple):
    """What a name such as `default@rerope+log_n` leads to."""

    id: str
    extension: str  # the engine's name for it
    served: ServedExtension


class ServedModels:
    """One set of weights under several extensions. Every spelling of an extension is the same model.

    The model's name alone means the extension `start`.
    """

    def __init__(self, engine: Engine, start: str, target_len: int | None = None) -> None:
        self.engine, self.start, self.target_len = engine, start, target_len
        self.tokenizer = ServerTokenizer(self.engine.tokenizer)

    def all(self) -> list[NamedModel]:
        """Every model, that of the start first."""
        names = [self.start, *(name for name in self.engine.extensions if name != self.start)]
        return [self._named(name) for name in names]

    def find(self, name: str | None) -> NamedModel:
        """The model of a name, or a refusal that says the nearest one."""
        if name is None:
            return self._named(self.start)
        from ropewalk.extension.parsing import parse_for  # loads torch

        model, at, line = name.partition("@")
        is_served = not at or line in self.engine.extensions
        if model != self.engine.name or (not is_served and (names_a_file(line) or len(line) > LONGEST_LINE)):
            raise self._unknown(name)
        if is_served:
            return self._named(line if at else self.start)
        for known, served in self.engine.extensions.items():
            try:
                if parse_for(line, served.facts, self.target_len) == served.extension:
                    return self._named(known)
            except RopewalkError as reason:
                raise self._unknown(name, f"; {str(reason).partition(' Known:')[0]}") from reason
        raise self._unknown(name)

    def _named(self, extension: str) -> NamedModel:
        return NamedModel(f"{self.engine.name}@{extension}", extension, self.engine.extensions[extension])

    def _unknown(self, name: str, why: str = "") -> Refusal:
        names = [self.engine.name, *(model.id for model in self.all())]
        longer = [known for known in names if len(name) > 1 and known.startswith(name)]
        close = longer or get_close_matches(name[:200].lower(), names, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        sentence = f"the model {name[:200]!r} is not served here{hint} Served: {', '.join(names)}{why}"
        return Refusal(404, sentence, param="model", code="model_not_found")


class ServerTokenizer:
    """The tokenizer as the routes use it; the engine decodes with another copy, in a thread of its own."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)
        self._longest = max(map(len, self._tokenizer.get_vocab()))  # characters of a token
        self._thread = ThreadPoolExecutor(1, "tokenizer")
        self.has_chat = bool(getattr(self._tokenizer, "chat_template", None))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def encode(
        self, prompt: Prompt, *, begins: bool = True, most: int | None = None, field: str = "prompt"
    ) -> tuple[int, ...]:
        """The tokens of a prompt. A text that is far too long is refused before it is read.

        Args:
            prompt: a text, or tokens already.
            begins: whether a text gets the special tokens that begin one.
            most: tokens that fit.
            field: the parameter that the prompt came in, for errors.
        """
        most = min(MOST_TOKENS, MOST_TOKENS if most is None else most)
        if isinstance(prompt, str) and len(prompt) > SLACK * self._longest * most:
            raise _too_long(prompt, field, most)
        left = Event()  # set when nobody waits any more: a tokenizer itself cannot be interrupted
        try:
            return await self.run(len(prompt), self._encode, prompt, begins, field, most, left)
        except asyncio.CancelledError:
            left.set()
            raise

    def _encode(self, prompt: Prompt, begins: bool, field: str, most: int, left: Event) -> tuple[int, ...]:
        if isinstance(prompt, str):
            if len(prompt) > most:  # it may be far too long, and is counted first
                self._count(prompt, field, most, left)
            return tuple(self._tokenizer(prompt, add_special_tokens=begins, verbose=False)["input_ids"])
        words = len(self._tokenizer)
        if not 0 <= min(prompt) <= max(prompt) < words:
            wrong = next(token for token in prompt if not 0 <= token < words)
            raise DoesNotFit(field, f"token ids from 0 to {words - 1:,}", wrong)
        return prompt

    def _count(self, text: str, field: str, most: int, left: Event) -> None:
        """Refuse a text as soon as its pieces have far more tokens than `most`, or nobody waits for it."""
        count = 0
        for first in range(0, len(text), PIECE):
            piece = text[first : first + PIECE]
            count += len(self._tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"])
            if count > BORDERS * most or left.is_set():
                raise _too_long(text, field, most)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def strings(self, ids: Sequence[int]) -> list[str]:
        """The text of every token; together they are the whole. A character in several tokens belongs to the last."""
        text = GrowingText(self._tokenizer, skip_special=False)
        strings = [text.push(token) for token in ids]
        return [*strings[:-1], strings[-1] + text.rest()]

    async def run(self, length: int, work: Callable[..., Result], *arguments: Any) -> Result:
        """The result of work on a text, in the thread where the text is long."""
        if length <= SHORT:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def render(self, messages: Sequence[Message]) -> str:
        """A conversation as the model's chat template writes it, up to where the answer begins."""
        if not self.has_chat:
            sentence = "the model has no chat template, so it cannot answer a conversation"
            raise DoesNotFit.because("messages", sentence, remedy="use /v1/completions")
        try:
            text: str = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except Exception as reason:  # a template raises whatever it likes
            detail = f"{type(reason).__name__}: {str(reason)[:200]}"
            raise InvalidValue.because("messages", f"the model's chat template refuses them ({detail})") from reason
        return text


def _too_long(text: str, field: str, most: int) -> DoesNotFit:
    several = "send it in several requests of a session"
    remedy = several if most == MOST_TOKENS else "shorten it, or use another extension"
    return DoesNotFit(field, f"at most {most:,} tokens", f"{len(text):,} characters", remedy=remedy)


class Metrics(Collector):
    """The server's figures for Prometheus, and those of its engine once there is one.

    Labels are routes and status codes, never anything that a client wrote.
    """

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "ropewalk_requests", "Requests by route and status", ["route", "status"], registry=registry
        )
        self.in_flight = Gauge("ropewalk_requests_in_flight", "Requests not yet answered", registry=registry)
        self.first_token = Histogram(
            "ropewalk_time_to_first_token_seconds", "Until the first token", buckets=FIRST, registry=registry
        )
        self.between_tokens = Histogram(
            "ropewalk_inter_token_seconds", "Between two tokens", buckets=BETWEEN, registry=registry
        )

    def watch(self, state: Callable[[], EngineState]) -> None:
        """From now on with the engine's figures."""
        self._state = state
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The engine's figures, read when they are asked for."""
        for name, value in self._state()._asdict().items():
            family = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
            yield family(f"ropewalk_{name}", f"{name} of the engine".replace("_", " "), value=value)


class Service:
    """The state of one server."""

    def __init__(self, settings: ApiSettings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.phase: Literal["loading", "ready", "draining"] = "loading"
        self.in_flight = 0
        self.models: ServedModels | None = None  # once the engine is loaded
        self.metrics.in_flight.set_function(lambda: self.in_flight)

    def begin(self, models: ServedModels) -> None:
        """The engine is loaded: answer requests."""
        self.models = models
        self.metrics.watch(models.engine.state)
        if self.phase == "loading":
            self.phase = "ready"


def service_of(request: Request) -> Service:
    """The server that a request came to."""
    service: Service = request.app.state.service
    return service


def models_of(request: Request) -> ServedModels:
    """The models; refused while they are being loaded, and when the server shuts down."""
    service = service_of(request)
    if service.phase == "draining":
        raise unavailable("the server is shutting down", seconds=30)
    if service.models is None:
        raise unavailable("the model is being loaded", seconds=2)
    return service.models
