"""What the routes share: the settings, the engine once it is loaded, and how far the server is in its life."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ropewalk.serve.api.answering import Answering
from ropewalk.serve.api.metrics import Metrics
from ropewalk.serve.api.names import Names
from ropewalk.serve.api.requests.body import BodyReader
from ropewalk.serve.api.requests.texts import Texts
from ropewalk.serve.api.responses.errors import unavailable


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """How the server treats its clients."""

    api_key: str | None = None
    allow_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # names by which requests may call the server; none are asked for where this is empty
    body_bytes: int = 10 * 2**20
    body_seconds: float = 30.0
    header_seconds: float = 15.0
    write_seconds: float = 60.0  # how long a client may leave an answer unread


class Phase(Enum):
    """How far the server is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


class Loaded(NamedTuple):
    """An engine, and what it was started with."""

    engine: Answering
    start: str  # the extension that the model's name alone means
    target_len: int | None = None


class Ready:
    """The engine, and what is made of it once."""

    def __init__(self, loaded: Loaded) -> None:
        self.engine, self.texts = loaded.engine, Texts(loaded.engine.tokenizer)
        self.names = Names(loaded.engine, loaded.start, loaded.target_len)


class Service:
    """The state of one server."""

    def __init__(self, settings: ApiSettings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self.body = BodyReader(settings.body_bytes, settings.body_seconds)
        self.phase, self.in_flight = Phase.LOADING, 0
        self._ready: Ready | None = None
        self.metrics.count(lambda: self.in_flight)

    def begin(self, loaded: Loaded) -> None:
        """The engine is loaded: answer requests."""
        self._ready = Ready(loaded)
        self.metrics.watch(loaded.engine.state)
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY

    def require_ready(self) -> Ready:
        """The engine; refused while it is being loaded, and when the server shuts down."""
        if self.phase is Phase.DRAINING:
            raise unavailable("the server is shutting down", seconds=30)
        if self._ready is None:
            raise unavailable("the model is being loaded", seconds=2)
        return self._ready

    def loaded(self) -> Ready | None:
        """The engine, if it is loaded, whatever the phase."""
        return self._ready
