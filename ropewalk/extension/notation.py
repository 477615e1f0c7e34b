"""The one-line notation: `yarn:factor=4+log_n`, read into names and values without knowledge of methods.

    text  = term { "+" term }
    term  = name [ ":" key "=" value { "," key "=" value } ]
    name  = word [ "." word ] | path ".py" [ ":" class ]
    value = number | true | false | nothing | word | "[" value { "," value } "]" | "(" term ")"

A list of terms (`context,needle:samples=8,depths=5,passkey`) also has commas between terms: a part with a key but no
name belongs to the term before it.

A length may be written 32k or 1m (times 1,024 and 1,048,576), a time 90s, 20m or 2h. A line has at most 10,000
characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

from ropewalk.errors import InvalidValue, UnknownName, Unreadable, short_repr

BARE = "bare"  # the name of the model without an extension, among lines
INSTEAD = "instead"  # a term, and no method: frequencies replace the checkpoint's own schedule
CONSTANTS = {"true": True, "false": False, "nothing": None}
UNITS = {"": 1, "k": 1024, "m": 1024**2}
LONGEST_NOTATION, LONGEST_NUMBER, DEEPEST = 10_000, 30, 8
LENGTH = r"([+-]?\d+)([kKmM]?)"
SECONDS = {"s": 1, "m": 60, "h": 3600}
FILE = ".py"  # ends the name of a task, or of a method, that is a file
OPEN, CLOSING = "([", ")]"
SIGNED_EXPONENT = re.compile(r"[=,\[]\s*[\d.]+[eE]\+")  # in 1e+5 the sign is not a separator


class Term(NamedTuple):
    """A name with its values."""

    name: str
    values: dict[str, Any]

    def __repr__(self) -> str:
        values = ",".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"({self.name}:{values})" if values else f"({self.name})"


def read(text: str) -> list[Term]:
    """The terms of an extension."""
    if not isinstance(text, str):
        raise Unreadable("extension", "text", text)
    _require_short(text, "extension", remedy="name a file of an extension, extension.json, instead")
    parts = _split(text, "+")
    if not all(part.strip() for part in parts):
        extension = f"the extension {short_repr(text)}"
        sentence = f"a part of {extension} is empty" if text.strip() else f"{extension} is empty"
        raise Unreadable.because("extension", sentence, remedy="write name:key=value,...+name...")
    return [_term(part) for part in parts]


def unknown_name(name: str, known: Sequence[str]) -> UnknownName:
    """The refusal of a name that no preset and no method has."""
    close = get_close_matches(
        name.lower(), {*known, *(full.rpartition(".")[2] for full in known)}
    )  # papers write ReRoPE
    if not close:
        return UnknownName("preset or method", name, known=known)
    sentence = f"there is no preset or method {name!r}; did you mean {' or '.join(map(repr, close))}?"
    return UnknownName.because("preset or method", sentence)


def read_list(text: str, field: str) -> list[Term]:
    """The terms of a list."""
    return [_term(term, field) for term in split_list(text, field)]


def split_list(text: str, field: str) -> list[str]:
    """The lines of a list, `yarn:factor=4,low_turns=1,rerope+log_n`: a part with a key but no name continues a line."""
    _require_short(text, field)
    lines = list[list[str]]()
    for part in _split(text, ",", field):
        continues = "=" in part and ":" not in part.partition("=")[0]
        if continues and lines:
            lines[-1].append(part)
        else:
            lines.append([part])
    return [",".join(parts) for parts in lines]


def _require_short(text: str, field: str, remedy: str = "") -> None:
    if len(text) > LONGEST_NOTATION:
        raise Unreadable(field, f"a line of at most {LONGEST_NOTATION:,} characters", len(text), remedy=remedy)


def names_file(name: str) -> bool:
    """Whether the name of a method is that of a file: ./my.py, or ./my.py:Slope."""
    return name.endswith(FILE) or f"{FILE}:" in name


def _term(text: str, field: str = "extension") -> Term:
    name, colon, rest = text.partition(":")
    in_file = name.strip().endswith(FILE)
    if in_file and field == "extension" and (title := re.match(r"\s*([A-Za-z_]\w*)\s*(?=:|$)", rest)):
        name, rest = f"{name.strip()}:{title[1]}", rest[title.end() :]
        colon, rest = rest[:1], rest[1:]
    if not in_file and not re.fullmatch(r"[A-Za-z_][\w-]*(\.\w+)?", name.strip()):
        form = "name:key=value,...+name..." if field == "extension" else "name:key=value,...,name..."
        raise Unreadable(field, f"written {form}", text)
    values: dict[str, Any] = {}
    for part in _split(rest, ",", field) if colon else []:
        key, equals, content = part.partition("=")
        if not equals or not key.strip() or not content.strip():
            raise Unreadable(f"parameter of {name.strip()}", "written key=value", part)
        if key.strip() in values:
            sentence = f"{name.strip()} has {key.strip()} twice in {short_repr(text)}"
            raise Unreadable.because(f"{name.strip()}:{key.strip()}", sentence)
        values[key.strip()] = value(content.strip())
    return Term(name.strip(), values)


def value(text: str) -> Any:
    """One value: a number, a constant, a list, a nested term, or the word itself."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if text.startswith("[") and text.endswith("]"):
        return tuple(value(part.strip()) for part in _split(text[1:-1], ",")) if text[1:-1].strip() else ()
    if text.startswith("(") and text.endswith(")"):
        return _term(text[1:-1])
    return _number(text)


def _number(text: str) -> Any:
    """A number if the text is one, otherwise the text itself."""
    if re.fullmatch(LENGTH, text):
        return length(text)
    try:
        return float(text)
    except ValueError:
        return text


def length(text: str, field: str = "length") -> int:
    """A whole number, or one in units: 512, 32k, 1m."""
    read = re.fullmatch(LENGTH, text.strip())
    if not read or len(text) > LONGEST_NUMBER:
        raise Unreadable(field, "a whole number such as 512, 32k or 1m", text)
    return int(read[1]) * UNITS[read[2].lower()]


def tokens(name: str, value: object) -> tuple[int, ...]:
    """Lengths in tokens: 1024 or "1k", or several of them; none where the caller says nothing."""
    if isinstance(value, str | Integral):
        value = [value] if value != "" else []
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InvalidValue(name, 'lengths in tokens, such as [512, "1k"]', value)
    return tuple(length(str(one), name) for one in value)


def growing_factors(factors: str | Sequence[float]) -> tuple[float, ...]:
    """The factors that one is chosen from for each request, such as 1,2,4; refused unless they grow from 1."""
    try:
        numbers = tuple(map(float, factors.split(",") if isinstance(factors, str) else factors))
    except (TypeError, ValueError):
        numbers = (math.nan,)
    finite = all(math.isfinite(factor) and factor >= 1 for factor in numbers)
    if not finite or any(factor >= larger for factor, larger in pairwise(numbers)):
        raise InvalidValue("request_factors", "growing numbers of at least 1, such as 1,2,4", factors)
    return numbers


def duration(text: str, field: str = "time") -> int:
    """Seconds, written with their unit: 90s, 20m, 2h."""
    read = re.fullmatch(r"(\d+)([smh])", text.strip())
    if not read or len(text) > LONGEST_NUMBER or int(read[1]) == 0:
        raise Unreadable(field, "a time above 0 such as 90s, 20m or 2h", text)
    return int(read[1]) * SECONDS[read[2]]


def minutes(seconds: float) -> str:
    """A time in words: 40 s, 7 min, 3.5 h."""
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _split(text: str, separator: str, field: str = "extension") -> list[str]:
    """Parts between separators outside brackets; the sign of an exponent (1e+5) is not a separator."""
    signs = {number.end() - 1 for number in SIGNED_EXPONENT.finditer(text)}
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in OPEN) - (character in CLOSING)
        if depth > DEEPEST:
            raise Unreadable(field, f"nested at most {DEEPEST} deep", text[:80])
        if character == separator and depth == 0 and place not in signs:
            parts.append(text[start:place])
            start = place + 1
        if depth < 0:
            break
    if depth:
        raise Unreadable(field, "written with matching brackets", text)
    return [*parts, text[start:]]
