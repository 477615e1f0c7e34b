"""Numbers that a caller asks for: refused as the command line refuses them, and never replaced by a default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import duration, length


def whole_number(name: str, value: object, *, least: int) -> int:
    """A whole number from `least` on: of texts, or of processes."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidValue(name, f"a whole number, at least {least}", value)
    if value < least:
        raise InvalidValue(name, f"at least {least}", value)
    return int(value)


def tokens(name: str, value: object) -> tuple[int, ...]:
    """Lengths in tokens: 1024 or "1k", or several of them; none where the caller says nothing."""
    if isinstance(value, str | Integral):
        value = [value] if value != "" else []
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise InvalidValue(name, 'lengths in tokens, such as [512, "1k"]', value)
    return tuple(length(str(one), name) for one in value)


def tasks_text(value: object) -> str:
    """Tasks in one text, as on the command line."""
    if not isinstance(value, str):
        raise InvalidValue("tasks", 'a list in one text, such as "context,passkey"', value)
    return value


def seconds(name: str, value: object) -> float | None:
    """A time above 0, in seconds or as "20m"; None where the caller says nothing."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return duration(value, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidValue(name, 'a time above 0, in seconds or as "20m"', value)
    return float(value)
