"""`default@rerope+log_n`: a model's name with an extension; every spelling of one extension is the same model."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ropewalk.errors import RopewalkError
from ropewalk.serve.api.answering import Answering, Carried
from ropewalk.serve.api.responses.errors import Refusal, unknown_model

AT = "@"
LONGEST_NAME = 500  # characters of a name
REMEMBERED = 256  # spellings


class NamedModel(NamedTuple):
    """What the name of a model leads to."""

    id: str
    extension: str  # the engine's name for it
    carried: Carried


class Names:
    """The models that are served: one set of weights under several extensions."""

    def __init__(self, engine: Answering, start: str, target_len: int | None = None) -> None:
        self.start = start
        self._engine, self._target_len = engine, target_len
        self._spelled = lru_cache(REMEMBERED)(self._named)

    @property
    def model(self) -> str:
        """The name without an extension."""
        return self._engine.name

    def all(self) -> list[NamedModel]:
        """Every model, that of the start first."""
        names = [self.start, *(name for name in self._engine.extensions if name != self.start)]
        return [self._of(name) for name in names]

    def resolve(self, asked: str | None) -> NamedModel:
        """The model of a name, or a refusal that names the nearest one."""
        if asked is None:
            return self._of(self.start)
        if len(asked) > LONGEST_NAME:
            raise self._unknown(asked)
        return self._spelled(asked)

    def _named(self, asked: str) -> NamedModel:
        model, at, line = asked.partition(AT)
        if model != self.model:
            raise self._unknown(asked)
        if not at:
            return self._of(self.start)
        if line in self._engine.extensions:
            return self._of(line)
        for name, carried in self._engine.extensions.items():
            if self._same(line, asked, carried):
                return self._of(name)
        raise self._unknown(asked)

    def _same(self, line: str, asked: str, carried: Carried) -> bool:
        """Whether a line is another spelling of an extension."""
        if line.strip().endswith(".json"):  # would be read from a file, which is the server's
            raise self._unknown(asked)
        from ropewalk.extension.parsing import parse_for  # which is loaded with the engine, and not before

        try:
            return parse_for(line, carried.facts, self._target_len) == carried.extension
        except RopewalkError as reason:
            raise self._unknown(asked, str(reason)) from reason

    def _of(self, name: str) -> NamedModel:
        return NamedModel(f"{self.model}{AT}{name}", name, self._engine.extensions[name])

    def _unknown(self, asked: str, why: str = "") -> Refusal:
        known = [self.model, *(model.id for model in self.all())]
        return unknown_model(asked, known, why)
