"""What every method is: a record with a name, a one-line form and a JSON form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import Generator, Tensor

from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.facts import Facts
from ropewalk.record import AT_LEAST_ONE, Checked, parameters, written

Json = dict[str, Any]
Weights = Mapping[str, Tensor]
Factor = Annotated[float, AT_LEAST_ONE, "how many times the trained length is to be reached"]


@dataclass(frozen=True, kw_only=True)
class Spec(Checked):
    """A method: its name, its parameters, and (in each leaf) one pure function."""

    name: ClassVar[str]

    def check_against(self, facts: Facts) -> None:
        """Refuse a model that this method cannot serve."""

    def to_json(self) -> Json:
        """The name and every field, so that a stored spec survives a change of defaults."""
        values = {parameter.name: getattr(self, parameter.name) for parameter in parameters(type(self))}
        return {"name": self.name, **{key: _plain(value) for key, value in values.items()}}

    def __str__(self) -> str:
        """As the command line writes it: the name and what differs from the defaults."""
        given = [
            f"{parameter.name}={written(getattr(self, parameter.name))}"
            for parameter in parameters(type(self))
            if getattr(self, parameter.name) != parameter.default
        ]
        return f"{self.name}:{','.join(given)}" if given else self.name


@dataclass(frozen=True, kw_only=True)
class Learnable(Spec):
    """A method that may learn numbers. They are handed in at each use and never kept: the spec stays frozen."""

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, Tensor]:
        """Initial values of what is learned, float64; empty where nothing is."""
        return {}


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


def build(cls: type[Spec], values: Mapping[str, Any]) -> Spec:
    """A spec from named values; a name it does not have, or one it misses, is an error."""
    known = [parameter.name for parameter in parameters(cls)]
    for name in values:
        if name not in known:
            raise UnknownName("parameter", name, known=known, owner=cls.name)
    for parameter in parameters(cls):
        if parameter.default is dataclasses.MISSING and parameter.name not in values:
            raise InvalidValue.because(
                parameter.name, f"{cls.name} needs {parameter.name}", remedy=f"write {cls.name}:{parameter.name}=..."
            )
    return cls(**values)
