"""Frozen, keyword-only records whose fields state their rules.

A field is declared once, with its rule and its meaning beside its type:

    factor: Annotated[float, AT_LEAST_ONE, "target length over trained length"]

From that one line come the check at construction, the error message, the JSON form, the command line's parameters and
the table in the docs.
"""

from __future__ import annotations

import dataclasses
import inspect
import numbers
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from ropewalk.errors import InvalidValue


@dataclass(frozen=True)
class Rule:
    """A condition on one field, with the words that complete "must be ..."."""

    text: str
    holds: Callable[[Any], bool]


POSITIVE = Rule("above 0", lambda value: value > 0)
NOT_NEGATIVE = Rule("at least 0", lambda value: value >= 0)
AT_LEAST_ONE = Rule("at least 1", lambda value: value >= 1)
ABOVE_ONE = Rule("above 1", lambda value: value > 1)
A_SHARE = Rule("above 0 and at most 1", lambda value: 0 < value <= 1)
EVEN = Rule("a positive even number", lambda value: value > 0 and value % 2 == 0)


class Parameter(NamedTuple):
    """One field as users see it."""

    name: str
    kind: str
    rule: Rule | None
    meaning: str
    default: Any  # dataclasses.MISSING where the field is required
    type: Any


def parameters(cls: type[Any]) -> tuple[Parameter, ...]:
    """The fields of a record, each with its rule and its meaning."""
    return _parameters(cast(Hashable, cls))


@cache
def _parameters(cls: Hashable) -> tuple[Parameter, ...]:
    record = cast(Any, cls)
    hints = get_type_hints(record, include_extras=True)
    return tuple(_parameter(field, hints[field.name]) for field in dataclasses.fields(record))


class ParameterRow(NamedTuple):
    """A field in words, as `show` and the docs print it."""

    name: str
    default: str
    rule: str
    meaning: str


def parameter_rows(cls: type[Any]) -> list[ParameterRow]:
    """The fields of a record in words."""
    return [
        ParameterRow(
            parameter.name,
            "must be given" if parameter.default is dataclasses.MISSING else value_text(parameter.default),
            parameter.kind + (f", {parameter.rule.text}" if parameter.rule else ""),
            parameter.meaning,
        )
        for parameter in parameters(cls)
    ]


def _parameter(field: dataclasses.Field[Any], hint: Any) -> Parameter:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    plain = get_args(hint)[0] if notes else hint
    rule = next((note for note in notes if isinstance(note, Rule)), None)
    meaning = next((note for note in notes if isinstance(note, str)), "")
    return Parameter(field.name, _kind(plain), rule, meaning, field.default, plain)


def _kind(hint: Any) -> str:
    """A type in words, to complete "must be ..."."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in arguments)
    if origin in (types.UnionType, Union):
        return " or ".join(_kind(argument) for argument in arguments)
    if origin is tuple:
        return f"a list, each item {_kind(arguments[0])}"
    words = {type(None): "nothing", float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    if hint in words:
        return words[hint]
    summary = str(hint.__doc__)
    return summary[0].lower() + summary.partition(".")[0][1:]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A record that checks each of its fields when it is made."""

    def __post_init__(self) -> None:
        for parameter in parameters(type(self)):
            value = _read(parameter, getattr(self, parameter.name))
            object.__setattr__(self, parameter.name, value)
        self.check()

    def check(self) -> None:
        """Rules between fields."""


def _read(parameter: Parameter, value: Any) -> Any:
    """The value in its declared type, or a refusal."""
    read = _convert(parameter.type, value)
    if read is _WRONG:
        raise InvalidValue(parameter.name, parameter.kind, value)
    if parameter.rule is not None and read is not None and not _holds(parameter.rule, read):
        raise InvalidValue(parameter.name, parameter.rule.text, value)
    return read


def _holds(rule: Rule, value: Any) -> bool:
    return all(map(rule.holds, value)) if isinstance(value, tuple) else rule.holds(value)


def require_arguments(function: Callable[..., Any], values: Mapping[str, object]) -> None:
    """Refuse keyword arguments that are not of the declared types."""
    known = arguments(function)
    for name, value in values.items():
        if name in known:  # Python refuses the others
            _read(known[name], value)


@cache
def arguments(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The keyword arguments of a function. One that is nothing by default is derived then, and has the other type."""
    hints = get_type_hints(function)
    read = {}
    for name, argument in inspect.signature(function).parameters.items():
        missing = argument.default is inspect.Parameter.empty
        default = dataclasses.MISSING if missing else argument.default
        stated = [hint for hint in get_args(hints[name]) if hint is not type(None)] if default is None else []
        kind = _kind(stated[0] if stated else hints[name])
        read[name] = Parameter(name, kind, None, "", default, hints[name])
    return read


_WRONG = object()
LARGEST_VALUE = 2**62  # beyond it a position overflows; NaN fails every comparison


def _convert(hint: Any, value: Any) -> Any:
    """`value` as `hint` wants it, or _WRONG. A bool is no number, a NaN is no value, a list stands for a tuple."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value if value in arguments else _WRONG
    if origin in (types.UnionType, Union):
        readings = [_convert(argument, value) for argument in arguments]
        return next((reading for reading in readings if reading is not _WRONG), _WRONG)
    if origin is tuple:
        return _convert_items(arguments[0], value)
    if hint in (int, float):
        return _convert_number(hint, value)
    return value if isinstance(value, hint) else _WRONG


def _convert_items(hint: Any, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _WRONG
    items = tuple(_convert(hint, item) for item in value)
    return _WRONG if _WRONG in items else items


def _convert_number(hint: type[int] | type[float], value: Any) -> Any:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not -LARGEST_VALUE <= value <= LARGEST_VALUE:
        return _WRONG
    if hint is int:
        return int(value) if isinstance(value, numbers.Integral) else _WRONG
    return float(value)


def value_text(value: Any) -> str:
    """A value as the one-line notation has it."""
    if isinstance(value, Checked):
        return f"({value})"
    if isinstance(value, tuple):
        return f"[{','.join(map(value_text, value))}]"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
