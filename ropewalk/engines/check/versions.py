"""Engines and versions as a user writes them: `vllm@0.32`. A version that was not read is refused, never guessed."""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.engines.check.engines import ENGINES
from ropewalk.engines.rules.rotation import EngineFormulas, Version, VersionRange
from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName


class ChosenEngine(NamedTuple):
    """An engine in one version."""

    rules: EngineFormulas
    version: Version
    source: str

    @property
    def written(self) -> str:
        """The version as its makers write it."""
        return version_text(self.rules, self.version)


def choose_engine(engine: str) -> ChosenEngine:
    """The engine and the version of `vllm@0.32`; without a version the newest that was read."""
    name, at, asked = engine.partition("@")
    if name not in ENGINES:
        raise UnknownName("engine", name, known=ENGINES)
    rules = ENGINES[name]
    if at:
        version = _version(asked, engine)
        return ChosenEngine(rules, version, _range(rules, version).source)
    return ChosenEngine(rules, rules.ranges[-1].last, rules.ranges[-1].source)


def version_text(rules: EngineFormulas, version: Version) -> str:
    """A version as text; llama.cpp numbers its builds."""
    return ("b" if rules.name == "llama.cpp" else "") + ".".join(map(str, version))


def _version(asked: str, engine: str) -> Version:
    numbers = asked.removeprefix("b").removeprefix("v").split("+")[0].split(".")
    if not all(number.isdigit() for number in numbers[:2]):
        raise InvalidValue("engine", "a name, or a name and a version such as vllm@0.32", engine)
    return tuple(int(number) for number in numbers if number.isdigit())


def _range(rules: EngineFormulas, version: Version) -> VersionRange:
    for between in rules.ranges:
        digits = len(between.first)
        if len(version) >= digits and between.first <= version[:digits] <= between.last:
            return between
    known = [f"{version_text(rules, first)} to {version_text(rules, last)}" for first, last, _ in rules.ranges]
    sentence = f"how {rules.name} {version_text(rules, version)} reads a config is not known, and is not guessed"
    raise DoesNotFit.because("engine", sentence, known=known)
