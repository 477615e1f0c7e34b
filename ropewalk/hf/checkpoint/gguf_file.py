"""GGUF files, which transformers reads: what is wrong with one is said before, and what it would drop in silence.

transformers takes the base of the rotation from a GGUF file, and neither its scaling nor its divisors for each pair.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ropewalk.errors import Unreadable
from ropewalk.files import holds, reading

MAGIC, TEXT, LIST = b"GGUF", 8, 9
NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # by the type's number
MOST_TENSORS, MOST_VALUES, LONGEST = 1_000_000, 100_000, 2**24  # of a file that was not made to exhaust memory
AGAIN = "fetch it again"
FOLDER = "take the folder that it was made of"


class GgufHead(NamedTuple):
    """The values that are no lists, and the names of the tensors."""

    values: dict[str, Any]
    tensors: list[str]


def require_gguf(file: Path) -> None:
    """Refuse a local file that is no GGUF file, a damaged one, and one whose rotation would be lost."""
    if not holds(file.is_file):  # on the hub, and not there yet
        return
    with reading(file, "model", "a GGUF file") as opened:
        head = _head(opened)
    architecture = head.values.get("general.architecture", "")
    scaling = head.values.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in head.tensors:
        kind = scaling if scaling != "none" else "divisors for each pair, as Llama 3.1 has"
        rule = "a GGUF file without a schedule of its own, which transformers would drop"
        raise Unreadable("model", rule, f"{file.name} with {kind}", remedy=FOLDER)


def _head(file: BinaryIO) -> GgufHead:
    if file.read(4) != MAGIC:
        raise Unreadable("model", "a GGUF file, which begins with the letters GGUF", file.name, remedy=AGAIN)
    version, tensors, count = _numbers(file, "IQQ")
    if tensors > MOST_TENSORS or count > MOST_VALUES:
        rule = f"a GGUF file with at most {MOST_TENSORS:,} tensors and {MOST_VALUES:,} values"
        raise Unreadable("model", rule, f"version {version}, {tensors:,} and {count:,}", remedy=AGAIN)
    values = {}
    for _ in range(count):
        name, (kind,) = _text(file), _numbers(file, "I")
        values[name] = _value(file, kind)
    names = []
    for _ in range(tensors):
        names.append(_text(file))
        (dimensions,) = _numbers(file, "I")
        _numbers(file, "Q" * dimensions + "IQ")
    return GgufHead(values, names)


def _value(file: BinaryIO, kind: int) -> Any:
    """A number or a text; lists are passed over."""
    if kind == TEXT:
        return _text(file)
    if kind != LIST:
        return _numbers(file, _layout(file, kind))[0]
    inner, length = _numbers(file, "IQ")
    if inner == TEXT:
        for _ in range(length):
            _text(file)
    else:
        file.seek(length * struct.calcsize(_layout(file, inner)), 1)
    return None


def _layout(file: BinaryIO, kind: int) -> str:
    """How a number of a type is stored; of another type there is none."""
    if kind not in NUMBERS:
        rule = f"a GGUF file whose values have types up to {max(NUMBERS)}"
        raise Unreadable("model", rule, f"type {kind} in {file.name}", remedy=AGAIN)
    return NUMBERS[kind]


def _numbers(file: BinaryIO, kinds: str) -> tuple[Any, ...]:
    layout = struct.Struct(f"<{kinds}")
    return layout.unpack(_bytes(file, layout.size))


def _text(file: BinaryIO) -> str:
    (length,) = _numbers(file, "Q")
    return _bytes(file, length).decode("utf-8", "replace")


def _bytes(file: BinaryIO, count: int) -> bytes:
    """The next bytes; a file that has no more is refused."""
    read = file.read(min(count, LONGEST))
    if len(read) < count:
        raise Unreadable("model", "a whole GGUF file", file.name, remedy=f"it ends or breaks off early; {AGAIN}")
    return read
