"""Reading files and JSON: whatever cannot be read raises `Unreadable` with the file and the reason.

And numbers as JSON has them, which knows no infinity and no NaN.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ropewalk.errors import RopewalkError, Unreadable

CHARACTERS_SHOWN = 60  # characters of a refused text that the error shows


def holds(test: Callable[[], bool]) -> bool:
    """The answer of a path's `exists`, `is_file` or `is_dir`; False for a name that no file can have."""
    try:
        return test()
    except (OSError, ValueError, RuntimeError):  # too long, with a null byte, or in the home of an unknown user
        return False


def read_text(path: Path, field: str, rule: str) -> str:
    """The text of a UTF-8 file."""
    try:
        return read_bytes(path, field, rule).decode()
    except UnicodeDecodeError as wrong:
        raise Unreadable(field, f"{rule}, in UTF-8", str(path), remedy=why(wrong)) from wrong


def read_bytes(path: Path, field: str, rule: str) -> bytes:
    """The bytes of a file."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as wrong:  # missing, a folder, not permitted; a name that no file can have
        raise Unreadable(field, rule, str(path), remedy=why(wrong)) from wrong


def text_in_pieces(path: Path, field: str, rule: str, size: int) -> Iterator[str]:
    """The text of a file that may be larger than the memory, so many characters at a time; broken ones are replaced."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield file.read(size)
            while text := file.read(size):
                yield text
    except OSError as wrong:
        raise Unreadable(field, rule, str(path), remedy=why(wrong)) from wrong


def why(wrong: BaseException) -> str:
    """The reason of an error in one line, without the path, which the message has already."""
    reason = getattr(wrong, "strerror", None) or str(wrong)
    return next(iter(str(reason).strip().splitlines()), "").rstrip(".:") or type(wrong).__name__


def require_text(text: str, field: str) -> bytes:
    """Encode a text as UTF-8; not every Python string can be."""
    try:
        return text.encode()
    except UnicodeEncodeError as wrong:
        remedy = "a lone surrogate is not a character, and no tokenizer reads it"
        raise Unreadable(field, "text", text[wrong.start : wrong.end], remedy=remedy) from wrong


def read_json(text: str | bytes, field: str, rule: str = "JSON") -> Any:
    """Parse our own JSON: no key twice, and finite numbers only."""

    def refuse(got: object, remedy: str) -> NoReturn:
        raise Unreadable(field, rule, got, remedy=remedy)

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            (name, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            refuse(name, "this key is there twice")
        return values

    def finite_number(number: str) -> float:
        return float(number) if math.isfinite(float(number)) else refuse(number, "numbers must be finite")

    try:
        return json.loads(
            text, object_pairs_hook=without_repeats, parse_constant=finite_number, parse_float=finite_number
        )
    except RopewalkError:
        raise
    except (ValueError, RecursionError) as wrong:  # broken, not UTF-8, a number of thousands of digits; nested too deep
        raise Unreadable(field, rule, text[:CHARACTERS_SHOWN], remedy=why(wrong)) from wrong


def read_record(path: Path, rule: str) -> dict[str, Any]:
    """The JSON object in one of our own files."""
    read = read_json(read_text(path, str(path), rule), str(path), rule)
    if not isinstance(read, dict):
        raise Unreadable(str(path), f"{rule}, a JSON object", read)
    return read


def json_lines(path: Path, field: str) -> Iterator[tuple[str, Any]]:
    """The lines of somebody else's JSON-lines file, with their names for errors; unread fields may be anything.

    Lines of white space hold nothing: editors and `echo` leave one at the end.
    """
    for number, line in enumerate(_lines(path, field), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            read = json.loads(line)
        except (ValueError, RecursionError) as wrong:
            raise Unreadable(where, "JSON", line[:CHARACTERS_SHOWN], remedy=why(wrong)) from wrong
        yield where, read


def _lines(path: Path, field: str) -> Iterator[bytes]:
    """As bytes, so that text that is not UTF-8 is refused with its line number."""
    try:
        with path.open("rb") as lines:
            yield from lines
    except (OSError, ValueError) as wrong:
        raise Unreadable(field, "a readable file", str(path), remedy=why(wrong)) from wrong


@contextmanager
def reading(path: Path, field: str, rule: str) -> Iterator[BinaryIO]:
    """A file of any size, open for reading."""
    try:
        opened = path.open("rb")
    except OSError as wrong:
        raise Unreadable(field, rule, str(path), remedy=why(wrong)) from wrong
    with opened:
        yield opened


def finite(value: float) -> float | None:
    """The number; None where it was not measured, or where an interval is open."""
    return value if math.isfinite(value) else None


def record_json(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with every number finite or null."""
    return {key: finite_json(part) for key, part in record.items()}


def finite_json(value: Any) -> Any:
    """A part of such a record."""
    if isinstance(value, Mapping):
        return record_json(value)
    if isinstance(value, list | tuple):
        return [finite_json(part) for part in value]
    return finite(value) if isinstance(value, float) else value
