"""Every method is a record with a name, a one-line form and a JSON form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from torch import Generator, Tensor

from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, Checked, parameters, value_text

Json = dict[str, Any]
Weights = Mapping[str, Tensor]
OF_ORIGIN = ("package", "file", "sha256")  # keys of a method's JSON beside its name and its parameters
TARGET_OVER_TRAINED = "target length over trained length"  # what a factor means, by which a line fills it
Factor = Annotated[float, AT_LEAST_ONE, TARGET_OVER_TRAINED]


class Origin(NamedTuple):
    """Where a method comes from that is not Ropewalk's: an installed package, or a file with its hash."""

    package: str = ""
    file: str = ""  # its name, without its folder
    sha256: str = ""
    written: str = ""  # how a line names it, such as ./my.py:Slope


OURS = Origin()


@dataclass(frozen=True, kw_only=True)
class Spec(Checked):
    """A method: its name, its parameters, and (in each leaf) one pure function."""

    name: ClassVar[str]
    origin: ClassVar[Origin] = OURS

    def check_against(self, facts: Facts) -> None:
        """Refuse a model that this method cannot serve."""

    def to_json(self) -> Json:
        """The name and every field, so that a stored method survives a change of defaults."""
        values = {parameter.name: getattr(self, parameter.name) for parameter in parameters(type(self))}
        return {"name": self.name, **_origin_json(self.origin), **{key: _plain(value) for key, value in values.items()}}

    def __str__(self) -> str:
        """The one-line form: the name, or the file, and every value that is not the default."""
        return self.under(self.origin.written or self.name)

    def under(self, name: str) -> str:
        """The same under a name."""
        values = [
            f"{parameter.name}={value_text(getattr(self, parameter.name))}"
            for parameter in parameters(type(self))
            if getattr(self, parameter.name) != parameter.default
        ]
        return f"{name}:{','.join(values)}" if values else name


@dataclass(frozen=True, kw_only=True)
class Learnable(Spec):
    """A method that may learn numbers. They are passed at each use and never stored: the spec stays frozen."""

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        """Initial values of the learned numbers, float64; empty where nothing is learned."""
        return {}


def _origin_json(origin: Origin) -> Json:
    stated = origin._asdict()
    return {key: stated[key] for key in OF_ORIGIN if stated[key]}


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


def with_inner(spec: Spec) -> list[Spec]:
    """A method and all that it contains, from the outside in."""
    values = [getattr(spec, parameter.name) for parameter in parameters(type(spec))]
    return [spec, *(part for value in values if isinstance(value, Spec) for part in with_inner(value))]


def require_parameters(cls: type[Spec], names: Iterable[str]) -> None:
    """Refuse a parameter that the method does not have."""
    known = [parameter.name for parameter in parameters(cls)]
    for name in names:
        if name not in known:
            raise UnknownName("parameter", name, known=known, owner=cls.name)


def build(cls: type[Spec], values: Mapping[str, Any]) -> Spec:
    """A method from named values; unknown and missing names are errors."""
    require_parameters(cls, values)
    for parameter in parameters(cls):
        if parameter.default is dataclasses.MISSING and parameter.name not in values:
            sentence, remedy = f"{cls.name} needs {parameter.name}", f"write {cls.name}:{parameter.name}=..."
            raise InvalidValue.because(parameter.name, sentence, remedy=remedy)
    return cls(**values)
