"""Files and JSON as they are read: whatever cannot be read is refused by name, whatever the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ropewalk.errors import RopewalkError, Unreadable

SHOWN = 60  # characters of a text that is refused


def holds(test: Callable[[], bool]) -> bool:
    """Whether a path is there, or a file, or a folder; a name that no file can have is none of these."""
    try:
        return test()
    except (OSError, ValueError):  # too long, or with a null byte
        return False


def read_text(path: Path, field: str, rule: str) -> str:
    """A file in UTF-8."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as wrong:  # not there, no file, not allowed; not UTF-8, a null byte in its name
        raise Unreadable(field, rule, str(path), remedy=why(wrong)) from wrong


def why(wrong: BaseException) -> str:
    """The reason of an error in one line, without the path, which is said anyway."""
    said = getattr(wrong, "strerror", None) or str(wrong)
    return next(iter(str(said).strip().splitlines()), "").rstrip(".:") or type(wrong).__name__


def read_json(text: str | bytes, field: str, rule: str = "JSON") -> Any:
    """What a text of ours stands for: each key once, and numbers that are finite."""

    def refuse(got: object, remedy: str) -> NoReturn:
        raise Unreadable(field, rule, got, remedy=remedy)

    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        for name in values if len(values) < len(pairs) else ():
            if sum(key == name for key, _ in pairs) > 1:
                refuse(name, "each key may be given once")
        return values

    def finite(number: str) -> float:
        return float(number) if math.isfinite(float(number)) else refuse(number, "numbers must be finite")

    try:
        return json.loads(text, object_pairs_hook=each_once, parse_constant=finite, parse_float=finite)
    except RopewalkError:
        raise
    except (ValueError, RecursionError) as wrong:  # broken, not UTF-8, a number of thousands of digits; nested too deep
        raise Unreadable(field, rule, text[:SHOWN], remedy=why(wrong)) from wrong


def read_record(path: Path, rule: str) -> dict[str, Any]:
    """The JSON object in a file of ours."""
    read = read_json(read_text(path, str(path), rule), str(path), rule)
    if not isinstance(read, dict):
        raise Unreadable(str(path), f"{rule}, a JSON object", read)
    return read
