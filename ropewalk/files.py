"""Files and JSON as they are read: whatever cannot be read is refused by name, whatever the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
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
        return read_bytes(path, field, rule).decode()
    except UnicodeDecodeError as wrong:
        raise Unreadable(field, f"{rule}, in UTF-8", str(path), remedy=why(wrong)) from wrong


def read_bytes(path: Path, field: str, rule: str) -> bytes:
    """A file as it is."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as wrong:  # not there, no file, not allowed; a name that none can have
        raise Unreadable(field, rule, str(path), remedy=why(wrong)) from wrong


def why(wrong: BaseException) -> str:
    """The reason of an error in one line, without the path, which is said anyway."""
    said = getattr(wrong, "strerror", None) or str(wrong)
    return next(iter(str(said).strip().splitlines()), "").rstrip(".:") or type(wrong).__name__


def require_text(text: str, field: str) -> bytes:
    """A text in UTF-8, which not everything is that Python takes for one."""
    try:
        return text.encode()
    except UnicodeEncodeError as wrong:
        remedy = "half of a pair of surrogates is no character, and no tokenizer reads it"
        raise Unreadable(field, "text", text[wrong.start : wrong.end], remedy=remedy) from wrong


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


def json_lines(path: Path, field: str) -> Iterator[tuple[str, Any]]:
    """Each line of a file of JSON with its name, as others write it: what is not read of it may be anything."""
    for number, line in enumerate(_lines(path, field), 1):
        where = f"{path.name}, line {number}"
        try:
            read = json.loads(line)
        except (ValueError, RecursionError) as wrong:
            raise Unreadable(where, "JSON", line[:SHOWN], remedy=why(wrong)) from wrong
        yield where, read


def _lines(path: Path, field: str) -> Iterator[bytes]:
    """As bytes: what is not UTF-8 is then refused with its line."""
    try:
        with path.open("rb") as lines:
            yield from lines
    except (OSError, ValueError) as wrong:
        raise Unreadable(field, "a file that may be read", str(path), remedy=why(wrong)) from wrong
