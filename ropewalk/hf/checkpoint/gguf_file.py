"""GGUF files, which transformers reads: what is wrong with one is said before, and its schedule is not lost.

transformers takes the base of the rotation from a GGUF file, and neither its scaling nor its divisors for each pair.
What llama.cpp computes of them is put into the config here: linear, YaRN with 32 and 1, and Llama 3.1's divisors, whose
parameters are found again.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ropewalk.errors import Unreadable
from ropewalk.files import holds, reading, why

MAGIC, TEXT, LIST = b"GGUF", 8, 9
NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # by the type's number
MOST_TENSORS, MOST_ITEMS, LONGEST_STRING = 1_000_000, 100_000, 2**24  # of a file that was not made to exhaust memory
ARCHITECTURE, WORDS = "general.architecture", "tokenizer.ggml.tokens"
DIVISORS, FLOAT32_TYPE, ALIGNMENT = "rope_freqs.weight", 0, 32
READ_BY_TRANSFORMERS = ("gpt-oss",)  # architectures whose scaling it reads
OTHERS = (  # values that change what llama.cpp computes, and have no counterpart here
    *("scaling.attn_factor", "scaling.yarn_log_multiplier", "scaling.yarn_ext_factor", "scaling.yarn_attn_factor"),
    *("scaling.yarn_beta_fast", "scaling.yarn_beta_slow", "scaling.alpha"),
)
USUAL_BASE, LOW_FREQ_FACTOR, HIGH_FREQ_FACTOR = 10_000.0, 1.0, 4.0  # Llama 3.1's own thresholds
ORIGINALS = [2**power for power in range(9, 19)]  # tokens; 8,192 in all that Meta released
UNKNOWN = re.compile(r"GGUF model with architecture (\S+) is not supported")
AGAIN = "fetch it again"
FOLDER = "take the folder that it was made of"


class GgufHead(NamedTuple):
    """The values, of lists their lengths; and the divisors of the pairs."""

    values: dict[str, Any]
    divisors: tuple[float, ...]

    def rope(self, name: str, default: Any = None) -> Any:
        """A value of the rotation."""
        architecture = self.values.get(ARCHITECTURE, "")
        return self.values.get(f"{architecture}.rope.{name}", default)


def require_gguf(file: Path) -> None:
    """Refuse a local file that is no GGUF file, is damaged, has no words, or whose rotation would be lost."""
    if holds(file.is_file):  # else it is on the hub, and not here yet
        schedule_in(file)


def not_read(file: str, reason: Exception) -> Unreadable:
    """The error where transformers does not read a file; of an architecture that it does not know it says only that."""
    unknown = UNKNOWN.search(str(reason))
    rule = f"a GGUF file {'of an architecture ' if unknown else ''}that transformers reads"
    got = f"{file} of {unknown.group(1)}" if unknown else file
    detail = "" if unknown else f"{type(reason).__name__}: {why(reason)}; {AGAIN}, or "
    return Unreadable("model", rule, got, remedy=f"{detail}{FOLDER}")


@contextmanager
def bar_as_wanted() -> Iterator[None]:
    """Where transformers is to show no progress bars, it shows none while it unpacks a GGUF file either."""
    from transformers import modeling_gguf_pytorch_utils as unpacking
    from transformers.utils import logging

    before: Any = unpacking.tqdm  # type: ignore[attr-defined]
    if not logging.is_progress_bar_enabled():
        unpacking.tqdm = partial(before, disable=True)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        unpacking.tqdm = before  # type: ignore[attr-defined]


def schedule_in(file: Path) -> dict[str, Any]:
    """The rope parameters of a file's schedule, without its base; empty where it has none."""
    with reading(file, "model", "a GGUF file") as opened:
        head = _head(opened)
    if not head.values.get(WORDS):
        raise Unreadable("model", f"a GGUF file with words ({WORDS})", f"{file.name}, which has none", remedy=FOLDER)
    kind, factor = head.rope("scaling.type", "none"), head.rope("scaling.factor", 1.0)
    if head.values.get(ARCHITECTURE) in READ_BY_TRANSFORMERS or (kind == "none" and not head.divisors):
        return {}
    told = {name for name in OTHERS if head.rope(name) is not None}
    if kind == "linear" and not told and not head.divisors:
        return {"rope_type": "linear", "factor": factor}
    original = head.rope("scaling.original_context_length")
    if kind == "yarn" and original and not told and not head.divisors:
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    if kind == "none" and (fitting := _llama3(head.divisors, head.rope("freq_base", USUAL_BASE))):
        return fitting
    schedule = "divisors for each pair" if head.divisors else ", ".join((kind, *sorted(told)))
    rule = "a GGUF file whose schedule is linear, YaRN or Llama 3.1's; transformers would drop another"
    raise Unreadable("model", rule, f"{file.name} with {schedule}", remedy=FOLDER)


def _llama3(divisors: Sequence[float], base: float) -> dict[str, Any]:
    """The parameters of Llama 3.1's schedule with these divisors; empty where none has them."""
    pairs, factor = len(divisors), max(divisors)
    for original in ORIGINALS:
        turns = [original * base ** (-pair / pairs) / (2 * math.pi) for pair in range(pairs)]
        kept = [min(max((turn - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR), 0.0), 1.0) for turn in turns]
        expected = (1 / (keep + (1 - keep) / factor) for keep in kept)
        if all(math.isclose(one, two, rel_tol=1e-5) for one, two in zip(divisors, expected, strict=True)):
            values = {
                "low_freq_factor": LOW_FREQ_FACTOR,
                "high_freq_factor": HIGH_FREQ_FACTOR,
                "original_max_position_embeddings": original,
            }
            return {"rope_type": "llama3", "factor": factor, **values}
    return {}


def _head(file: BinaryIO) -> GgufHead:
    if file.read(4) != MAGIC:
        raise Unreadable("model", "a GGUF file, which begins with the letters GGUF", file.name, remedy=AGAIN)
    version, tensors, count = _numbers(file, "IQQ")
    if tensors > MOST_TENSORS or count > MOST_ITEMS:
        rule = f"a GGUF file with at most {MOST_TENSORS:,} tensors and {MOST_ITEMS:,} values"
        raise Unreadable("model", rule, f"version {version}, {tensors:,} and {count:,}", remedy=AGAIN)
    values = {}
    for _ in range(count):
        name, (kind,) = _text(file), _numbers(file, "I")
        values[name] = _value(file, kind)
    places = {}
    for _ in range(tensors):
        name, (dimensions,) = _text(file), _numbers(file, "I")
        places[name] = _numbers(file, "Q" * dimensions + "IQ")
    alignment = values.get("general.alignment") or ALIGNMENT
    begin = -(-file.tell() // alignment) * alignment
    divisors: tuple[float, ...] = ()
    if DIVISORS in places:
        *shape, kind, offset = places[DIVISORS]
        if kind != FLOAT32_TYPE or len(shape) != 1 or shape[0] > MOST_ITEMS:
            raise Unreadable("model", f"a GGUF file with {DIVISORS} as a list of float32", file.name, remedy=AGAIN)
        file.seek(begin + offset)
        divisors = _numbers(file, "f" * shape[0])
    _require_whole(file, [(begin + offset, kind, shape) for *shape, kind, offset in places.values()])
    return GgufHead(values, divisors)


def _require_whole(file: BinaryIO, tensors: Sequence[tuple[int, int, Sequence[int]]]) -> None:
    """Refuse a file that ends before its last tensor does; each begins at a place, and has a type and a shape."""
    with suppress(ImportError):  # without the package nothing is read from the file anyway
        from gguf.constants import GGML_QUANT_SIZES as SIZES

        known = {int(kind): size for kind, size in SIZES.items()}
        ends = [
            place + math.prod(shape) // known[kind][0] * known[kind][1]
            for place, kind, shape in tensors
            if kind in known and math.prod(shape) < 2**62
        ]
        if ends and file.seek(0, os.SEEK_END) < max(ends):
            raise Unreadable("model", "a whole GGUF file", file.name, remedy=f"it ends or breaks off early; {AGAIN}")


def _value(file: BinaryIO, kind: int) -> Any:
    """A number or a text; of a list, which is passed over, its length."""
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
    return length


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
    read = file.read(min(count, LONGEST_STRING))
    if len(read) < count:
        raise Unreadable("model", "a whole GGUF file", file.name, remedy=f"it ends or breaks off early; {AGAIN}")
    return read
