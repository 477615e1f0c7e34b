"""What the routes share: settings, how far the server is in its life, and the models that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, NamedTuple

from starlette.requests import Request

from ropewalk.errors import RopewalkError
from ropewalk.serve.metrics import Metrics
from ropewalk.serve.refusals import Refusal, unavailable
from ropewalk.serve.requests import names_a_file
from ropewalk.serve.tokenizer import ServerTokenizer

if TYPE_CHECKING:  # with torch, which is loaded beside the server
    from ropewalk.serve.generation.engine import Engine
    from ropewalk.serve.generation.model import ServedExtension

LONGEST_LINE = 500  # characters of an extension


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
        self.engine, self.start, self._target_len = engine, start, target_len
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
        if model != self.engine.name or names_a_file(line) or len(line) > LONGEST_LINE:
            raise self._unknown(name)
        if not at or line in self.engine.extensions:
            return self._named(line if at else self.start)
        for known, served in self.engine.extensions.items():
            try:
                if parse_for(line, served.facts, self._target_len) == served.extension:
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
