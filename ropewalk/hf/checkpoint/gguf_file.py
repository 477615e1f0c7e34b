"""GGUF files: their metadata in a moment, what is wrong with one in a sentence, and a schedule that is not lost.

transformers takes the base of the rotation from a GGUF file, and neither its scaling nor its divisors for each pair.
What llama.cpp computes of them is put into the config here: linear, YaRN with 32 and 1, Llama 3.1's divisors, whose
parameters are found again, and any other divisors as longrope's.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn

from ropewalk.errors import Unreadable, not_installed
from ropewalk.files import holds, read_json, reading, why
from ropewalk.folders import whole_file

MAGIC, TEXT, LIST = b"GGUF", 8, 9
NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}  # by the type's number
MOST_TENSORS, MOST_ITEMS = 1_000_000, 100_000  # of a file that was not made to exhaust memory
VERSIONS = (2, 3)
ARCHITECTURE, WORDS = "general.architecture", "tokenizer.ggml.tokens"
DIVISORS, FLOAT32_TYPE, ALIGNMENT = "rope_freqs.weight", 0, 32
ATTN_FACTOR = "scaling.attn_factor"  # of cos and sin, beside the temperature of a schedule
NOTE = "ropewalk.export"  # what an export of ours stretched, and over which base; llama.cpp does not read it
PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
DIVIDED = ("llama", "arcee", "exaone4")  # whose divisors are a schedule; elsewhere they may say which pairs rotate
READ_BY_TRANSFORMERS = ("gpt-oss",)  # architectures whose scaling it reads
OTHERS = (  # values that change what llama.cpp computes, and have no counterpart here
    *("scaling.yarn_log_multiplier", "scaling.yarn_ext_factor", "scaling.yarn_attn_factor"),
    *("scaling.yarn_beta_fast", "scaling.yarn_beta_slow", "scaling.alpha"),
)
USUAL_BASE, LOW_FREQ_FACTOR, HIGH_FREQ_FACTOR = 10_000.0, 1.0, 4.0  # Llama 3.1's own thresholds
ORIGINALS = [2**power for power in range(9, 19)]  # tokens; 8,192 in all that Meta released
UNKNOWN = re.compile(r"GGUF model with architecture (\S+) is not supported")
AGAIN = "fetch it again"
FOLDER = "take the folder that it was made of"


class GgufTensor(NamedTuple):
    """One tensor: its bytes begin at `start` in the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int


class GgufHead(NamedTuple):
    """All of a file but its tensors' numbers: values (of lists their lengths), and where everything lies."""

    version: int
    values: dict[str, Any]
    places: dict[str, slice]  # of each key with its value
    tensors: tuple[GgufTensor, ...]
    divisors: tuple[float, ...]  # of the pairs

    @property
    def architecture(self) -> str:
        return str(self.values.get(ARCHITECTURE, ""))

    @property
    def alignment(self) -> int:
        return int(self.values.get("general.alignment") or ALIGNMENT)

    def stated(self, name: str, default: Any = None) -> Any:
        """A value of the architecture."""
        return self.values.get(f"{self.architecture}.{name}", default)

    def rope(self, name: str, default: Any = None) -> Any:
        """A value of the rotation."""
        return self.stated(f"rope.{name}", default)

    @property
    def rotating(self) -> int:
        """The dimensions of a head that rotate."""
        share = int(self.stated("embedding_length", 0)) // max(int(self.stated("attention.head_count", 1)), 1)
        return int(self.rope("dimension_count") or self.stated("attention.key_length") or share)

    @property
    def is_scaled(self) -> bool:
        """Whether the file has a schedule."""
        return bool(self.divisors) or self.rope("scaling.type", "none") != "none"

    def divisors_over(self, base: float) -> tuple[float, ...]:
        """The divisors of the pairs over another base than the file's."""
        times, pairs = float(self.rope("freq_base", USUAL_BASE)) / base, len(self.divisors)
        return tuple(value * times ** (pair / pairs) for pair, value in enumerate(self.divisors))

    @property
    def note(self) -> dict[str, Any]:
        """What an export of ours noted; empty where the file is none."""
        return dict(read_json(str(self.values[NOTE]), NOTE)) if NOTE in self.values else {}


def require_gguf(file: Path) -> None:
    """Refuse a local file that is no GGUF file, is damaged, has no words, or whose rotation would be lost.

    Without the package that unpacks it, transformers would speak of a file that it cannot read.
    """
    if find_spec("gguf") is None:
        raise not_installed(ModuleNotFoundError("No module named 'gguf'", name="gguf"))
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


@contextmanager
def without_words(file: Path) -> Iterator[Path]:
    """A folder with a file of the same name and metadata, without its words and numbers: transformers takes a minute to
    read a vocabulary that it does not need for a config. Tensors are there by their names, which it looks at."""
    head = read_head(file)
    with reading(file, "model", "a GGUF file") as opened, TemporaryDirectory() as folder:
        kept = [place for name, place in head.places.items() if not name.startswith("tokenizer.")]
        added = []
        if head.stated("vocab_size") is None:
            added = [_key(f"{head.architecture}.vocab_size", "I", head.values.get(WORDS, 0))]
        with whole_file(Path(folder) / file.name) as small:
            small.write(MAGIC + struct.pack("<IQQ", head.version, len(head.tensors), len(kept) + len(added)))
            for span in kept:
                opened.seek(span.start)
                small.write(opened.read(span.stop - span.start))
            small.writelines(added)
            small.writelines(tensor_entry(tensor.name, (1,), FLOAT32_TYPE, 0) for tensor in head.tensors)
            small.write(bytes(2 * head.alignment))
        yield Path(folder)


def text_bytes(text: str) -> bytes:
    """A text as GGUF files have it."""
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _key(name: str, layout: str, value: Any) -> bytes:
    kind = next(kind for kind, number in NUMBERS.items() if number == layout)
    return text_bytes(name) + struct.pack(f"<I{layout}", kind, value)


def key_entry(name: str, value: float | str) -> bytes:
    """A key with a value, as GGUF files have them: whole numbers of 32 bits, float32, or a text."""
    if isinstance(value, str):
        return text_bytes(name) + struct.pack("<I", TEXT) + text_bytes(value)
    return _key(name, "I" if isinstance(value, int) else "f", value)


def tensor_entry(name: str, shape: Sequence[int], kind: int, offset: int) -> bytes:
    """What GGUF files say of a tensor."""
    return text_bytes(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def schedule_in(file: Path) -> dict[str, Any]:
    """The rope parameters of a file's schedule, without its base; empty where it has none."""
    head = read_head(file)
    if not head.values.get(WORDS):
        raise Unreadable("model", f"a GGUF file with words ({WORDS})", f"{file.name}, which has none", remedy=FOLDER)
    kind, factor, told = head.rope("scaling.type", "none"), head.rope("scaling.factor", 1.0), head.rope(ATTN_FACTOR)
    if head.architecture in READ_BY_TRANSFORMERS or (not head.is_scaled and told in (None, 1.0)):
        return {}
    others = {name for name in OTHERS if head.rope(name) is not None}
    original, attn_factor = head.rope("scaling.original_context_length"), 1.0 if told is None else float(told)
    if kind == "linear" and not others and not head.divisors and attn_factor == 1:
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn" and original and not others and not head.divisors:
        temperature = {"attention_factor": attn_factor * (0.1 * math.log(factor) + 1)} if attn_factor != 1 else {}
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **temperature}
    every_pair = head.architecture in DIVIDED and 2 * len(head.divisors) == head.rotating
    if kind == "none" and not others and every_pair:
        return _of_divisors(head, attn_factor)
    schedule = "divisors for each pair" if head.divisors else ", ".join((kind, *sorted(others)))
    rule = "a GGUF file whose schedule is linear, YaRN or divisors; transformers would drop another"
    raise Unreadable("model", rule, f"{file.name} with {schedule}", remedy=FOLDER)


def _of_divisors(head: GgufHead, attn_factor: float) -> dict[str, Any]:
    """Llama 3.1's parameters where the divisors are its; else longrope's. Over the base 1 they are whole periods."""
    stated = float(head.rope("freq_base", USUAL_BASE))
    base = stated if stated != 1 else float(head.note.get("rope_theta", USUAL_BASE))
    divisors = list(head.divisors_over(base))
    if attn_factor == 1 and (fitting := _llama3(divisors, base)):
        return {"rope_theta": base, **fitting}
    return {
        "rope_type": "longrope",
        "rope_theta": base,
        "short_factor": divisors,
        "long_factor": divisors,
        "factor": 1.0,
        "attention_factor": attn_factor,
        "original_max_position_embeddings": head.stated("context_length"),
    }


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


def read_head(file: Path) -> GgufHead:
    """A file's metadata, read once; refused with its reason where it is damaged, or of a kind that is not read."""
    with reading(file, "model", "a GGUF file"):  # missing, a folder, not permitted
        on_disk = file.stat()
    return _read_head(file, on_disk.st_size, on_disk.st_mtime_ns)


@lru_cache(maxsize=2)
def _read_head(file: Path, size: int, changed: int) -> GgufHead:
    with reading(file, "model", "a GGUF file") as opened:
        if opened.read(4) != MAGIC:
            raise Unreadable("model", "a GGUF file, which begins with the letters GGUF", str(file), remedy=AGAIN)
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _head(_Cursor(data, str(file)))


class _Cursor:
    """A place in a file from which numbers and texts are read."""

    def __init__(self, data: mmap.mmap, name: str) -> None:
        self.data, self.name, self.at = data, name, len(MAGIC)

    def refuse(self, rule: str, got: str = "", remedy: str = AGAIN) -> NoReturn:
        """Raise what is wrong with the file."""
        raise Unreadable("model", rule, got or self.name, remedy=remedy)

    def skip(self, count: int) -> int:
        """Pass over bytes, and say where they began; a file that has no more is refused."""
        before, self.at = self.at, self.at + count
        if self.at > len(self.data):
            self.refuse("a whole GGUF file", remedy=f"it ends or breaks off early; {AGAIN}")
        return before

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        """The next numbers, of these types."""
        layout = struct.Struct(f"<{kinds}")
        return layout.unpack_from(self.data, self.skip(layout.size))

    def text(self) -> str:
        """The next text."""
        (length,) = self.numbers("Q")
        begin = self.skip(length)
        return self.data[begin : begin + length].decode("utf-8", "replace")

    def pass_over_texts(self, count: int) -> None:
        """Pass over the texts of a list: a vocabulary has a quarter of a million."""
        length = struct.Struct("<Q")
        end = self.at + 8 * count
        while self.at < end <= len(self.data):
            (size,) = length.unpack_from(self.data, self.at)
            self.at, end = self.at + 8 + size, end + size
        self.skip(end - self.at)

    def value(self, kind: int) -> Any:
        """A number or a text; of a list, which is passed over, its length."""
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.numbers(self.layout(kind))[0]
        inner, length = self.numbers("IQ")
        if inner == TEXT:
            self.pass_over_texts(length)
        else:
            self.skip(length * struct.calcsize(self.layout(inner)))
        return length

    def layout(self, kind: int) -> str:
        """How a number of a type is stored; of another type there is none."""
        if kind not in NUMBERS:
            self.refuse(f"a GGUF file whose values have types up to {max(NUMBERS)}", f"type {kind} in {self.name}")
        return NUMBERS[kind]


def _head(file: _Cursor) -> GgufHead:
    (version,) = file.numbers("I")
    if version & 0xFFFF == 0:
        file.refuse("a little-endian GGUF file", f"{file.name}, which is big-endian", "gguf-convert-endian turns it")
    if version not in VERSIONS:
        file.refuse("a GGUF file of version 2 or 3", f"version {version} of {file.name}", FOLDER)
    tensors, count = file.numbers("QQ")
    if tensors > MOST_TENSORS or count > MOST_ITEMS:
        rule = f"a GGUF file with at most {MOST_TENSORS:,} tensors and {MOST_ITEMS:,} values"
        file.refuse(rule, f"version {version}, {tensors:,} and {count:,}")
    values: dict[str, Any] = {}
    places = {}
    for _ in range(count):
        begin, name, (kind,) = file.at, file.text(), file.numbers("I")
        values[name] = file.value(kind)
        places[name] = slice(begin, file.at)
    _require_one_part(file, values)
    entries = []
    for _ in range(tensors):
        name, (dimensions,) = file.text(), file.numbers("I")
        entries.append((name, file.numbers("Q" * dimensions + "IQ")))
    alignment = values.get("general.alignment") or ALIGNMENT
    data = -(-file.at // alignment) * alignment
    laid = tuple(GgufTensor(name, tuple(shape), kind, data + offset) for name, (*shape, kind, offset) in entries)
    divisors: tuple[float, ...] = ()
    for tensor in laid:
        if tensor.name == DIVISORS:
            if tensor.kind != FLOAT32_TYPE or len(tensor.shape) != 1 or tensor.shape[0] > MOST_ITEMS:
                file.refuse(f"a GGUF file with {DIVISORS} as a list of float32")
            file.at = tensor.start
            divisors = file.numbers("f" * tensor.shape[0])
    _require_whole(file, laid)
    return GgufHead(version, values, places, laid, divisors)


def _require_one_part(file: _Cursor, values: dict[str, Any]) -> None:
    """Refuse one file of several."""
    named = PART.search(file.name)
    parts = values.get("split.count") or (int(named.group(1)) if named else 1)
    if parts > 1:
        remedy = "llama-gguf-split --merge FIRST_FILE OUT.gguf joins them"
        file.refuse("a GGUF file in one piece", f"{Path(file.name).name}, which is one of {parts}", remedy)


def _require_whole(file: _Cursor, tensors: Sequence[GgufTensor]) -> None:
    """Refuse a file that ends before its last tensor does."""
    with suppress(ImportError):  # without the package nothing is read from the file anyway
        from gguf.constants import GGML_QUANT_SIZES as SIZES

        known = {int(kind): size for kind, size in SIZES.items()}
        ends = [
            tensor.start + math.prod(tensor.shape) // known[tensor.kind][0] * known[tensor.kind][1]
            for tensor in tensors
            if tensor.kind in known and math.prod(tensor.shape) < 2**62
        ]
        file.at = 0
        file.skip(max(ends, default=0))
