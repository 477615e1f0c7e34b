"""A GGUF file under a schedule: its tensors byte for byte, in the precision that they have, and other metadata.

No weights are in memory. What llama.cpp can carry is decided as for any export (`rules.rewrite`), on a model that the
metadata describes. A temperature that would be folded into the queries is a factor of cos and sin here.
"""

from __future__ import annotations

import json
import shlex
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ropewalk.engines.llama_cpp.gguf import SCALINGS, periods, require_package, schedule_values
from ropewalk.engines.llama_cpp.rules import DROPS
from ropewalk.engines.rules.statement import EngineReading, StatedModel, notes_on_lengths
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.files import holds, reading as reading_file
from ropewalk.folders import require_new_file, whole_file
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import Handle
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_gguf
from ropewalk.hf.checkpoint.gguf_file import (
    DIVISORS,
    FLOAT32_TYPE,
    MAGIC,
    NOTE,
    USUAL_BASE,
    GgufHead,
    key_entry,
    read_head,
    tensor_entry,
)
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.probe.facts import EXPORTED, correct
from ropewalk.hf.use.stand_in import stand_in
from ropewalk.models import GGUF

BLOCK = 2**23  # bytes that are copied at a time
REPLACED = ("context_length", "rope.freq_base", "rope.scale_linear", "rope.scaling.")  # or their beginnings
UNQUANTISED = (0, 1, 30)  # F32, F16, BF16
ORIGINAL = "take the file that it was made of"
# llama.cpp's options, by what they replace in the metadata.
OPTIONS = {
    "rope.freq_base": "--rope-freq-base",
    "rope.scaling.type": "--rope-scaling",
    "rope.scaling.factor": "--rope-scale",
    "rope.scaling.original_context_length": "--yarn-orig-ctx",
}


def export_file(
    model: str,
    out: Path | None,
    extension: Extension | str | None,
    target_len: int | None,
    *,
    force: bool,
    options: LoadOptions,
    plan: Callable[[Handle, str, int | None], Any],
) -> tuple[str, Path, str, tuple[str, ...]]:
    """Write a file under an extension, as `plan` says of a model like it; its kind, place, command and notes."""
    if out is None or extension is None:
        missing = "directory" if out is None else "extension"
        raise InvalidValue.because(missing, f"a GGUF file needs {missing}: where the other goes, and what it is under")
    require_package()
    require_new_file(out, GGUF, force)
    source = fetch_gguf(model, options)
    if holds(lambda: source.samefile(out)):
        raise InvalidValue("out", "another file than the model, which is read while it is written", str(out))
    head, config = read_head(source), fetch_config(model, options)
    if config.model_type in DROPS:
        sentence = f"{head.architecture} was not run in llama.cpp under a schedule of its metadata"
        raise DoesNotFit.because("model", sentence, remedy="export the folder that it was made of for another engine")
    host = stand_in(config)
    correct(host, options.trained_len)
    handle = extend(host, extension, target_len=target_len)
    _require_original(source, head, handle.extension)
    planned = plan(handle, "llama.cpp", target_len)
    if isinstance(planned, DoesNotFit):
        raise planned
    kind, _, stated, reading = planned
    values = _metadata(head, stated, reading)
    _write(source, out, head, stated, reading, values)
    notes = _notes(source, out, head, planned, values)
    return kind, out, f"llama-server -m {shlex.quote(str(out))} -c {stated.length}", tuple(notes)


def require_gguf_target(model: str, target: str) -> None:
    """Refuse a name that is no GGUF file, and an engine that such a file is not written for."""
    if not model.endswith(GGUF):
        remedy = "load it (rw.load), extend it, and export that"
        raise InvalidValue("model", "under an extension, or the name of a GGUF file", model, remedy=remedy)
    if target != "llama.cpp":
        sentence = f"a GGUF file becomes one for llama.cpp, not for {target}"
        raise InvalidValue.because("target", sentence, remedy="load it (rw.load), extend it, and export that")


class CopiedTensor(NamedTuple):
    """The bytes of one tensor: a part of the source, or new ones."""

    name: str
    shape: tuple[int, ...]
    kind: int
    data: slice | bytes

    @property
    def size(self) -> int:
        return len(self.data) if isinstance(self.data, bytes) else self.data.stop - self.data.start


def _require_original(source: Path, head: GgufHead, extension: Extension) -> None:
    """Refuse a file that an export of ours has stretched, but where that schedule can be taken off by its name."""
    note, named = head.note, head.rope("scaling.type") in SCALINGS and not head.divisors
    if not note or (extension.replaces_scaling and named and head.rope("freq_base") == note.get("rope_theta")):
        return
    lengths = f"from {note.get('trained_len'):,} to {note.get('target_len'):,} tokens"
    sentence = f"{source.name} is stretched by {note.get('methods')} already, {lengths}"
    raise Conflict.because("model", sentence, remedy=f"{ORIGINAL}{', or add +instead' if named else ''}")


def _metadata(head: GgufHead, stated: StatedModel, reading: EngineReading) -> dict[str, int | float | str]:
    """What the file is to say of its schedule; refused where metadata do not say it."""
    if reading.folded != 1 and (stated.kinds or not stated.reaches_all):
        sentence = f"llama.cpp gives a temperature of a file's metadata to every layer of {head.architecture}"
        remedy = "use yarn, pi, ntk or abf, or export the folder that it was made of"
        raise DoesNotFit.because("temperature", f"{sentence}, and to what rotates", remedy=remedy)
    return schedule_values(stated, reading.folded)


def _write(
    source: Path,
    out: Path,
    head: GgufHead,
    stated: StatedModel,
    reading: EngineReading,
    values: Mapping[str, int | float | str],
) -> None:
    """Write the file whole, under a temporary name until it is."""
    pieces = list(_pieces(head, source.stat().st_size))
    if reading.divisors:
        data = periods(stated).numpy().astype("<f4").tobytes()
        pieces.append(CopiedTensor(DIVISORS, (len(data) // 4,), FLOAT32_TYPE, data))
    keys = [key_entry(f"{head.architecture}.{name}", value) for name, value in values.items()]
    if stretch := getattr(stated.text, EXPORTED, None):
        base = head.note.get("rope_theta", head.rope("freq_base", USUAL_BASE))
        keys.append(key_entry(NOTE, json.dumps({**stretch, "rope_theta": base})))
    kept = [place for name, place in head.places.items() if not _is_replaced(name, head.architecture)]
    with reading_file(source, "model", "a GGUF file") as old, whole_file(out) as new:
        new.write(MAGIC + struct.pack("<IQQ", head.version, len(pieces), len(kept) + len(keys)))
        for span in kept:
            _copy(old, new, span)
        new.writelines(keys)
        _write_tensors(old, new, pieces, head.alignment)


def _is_replaced(name: str, architecture: str) -> bool:
    return name == NOTE or name.startswith(tuple(f"{architecture}.{begin}" for begin in REPLACED))


def _pieces(head: GgufHead, size: int) -> Iterator[CopiedTensor]:
    """The tensors in the order of their numbers, each up to the next; divisors are the schedule's."""
    laid = sorted(head.tensors, key=lambda tensor: tensor.start)
    ends = [*(tensor.start for tensor in laid[1:]), size]
    for tensor, end in zip(laid, ends, strict=True):
        if tensor.name != DIVISORS:
            yield CopiedTensor(tensor.name, tensor.shape, tensor.kind, slice(tensor.start, end))


def _write_tensors(old: BinaryIO, new: BinaryIO, pieces: Sequence[CopiedTensor], alignment: int) -> None:
    offset = 0
    for piece in pieces:
        new.write(tensor_entry(piece.name, piece.shape, piece.kind, offset))
        offset += -(-piece.size // alignment) * alignment
    for piece in pieces:
        new.write(bytes(-new.tell() % alignment))
        if isinstance(piece.data, bytes):
            new.write(piece.data)
        else:
            _copy(old, new, piece.data)
    new.write(bytes(-new.tell() % alignment))


def _copy(old: BinaryIO, new: BinaryIO, span: slice) -> None:
    old.seek(span.start)
    left = span.stop - span.start
    while left > 0 and (block := old.read(min(left, BLOCK))):
        new.write(block)
        left -= len(block)


def _notes(
    source: Path,
    out: Path,
    head: GgufHead,
    planned: tuple[str, Extension, StatedModel, EngineReading],
    values: Mapping[str, int | float | str],
) -> list[str]:
    kind, _, stated, reading = planned
    notes = ["the tensors are those of the model, byte for byte; only metadata differ"]
    if reading.divisors:
        notes = [f"the tensors are those of the model, byte for byte, and {DIVISORS} has the schedule"]
    if kind == "frozen":
        notes.append(f"made static for {stated.length:,} tokens")
    notes += notes_on_lengths(stated)
    if reading.folded != 1:
        notes.append(f"a temperature of {reading.folded:.4f} is in {head.architecture}.rope.scaling.attn_factor")
    if reading.unrun:
        notes.append(
            f"llama.cpp was never run with {head.architecture} under a schedule: compare before you rely on it"
        )
    if not reading.divisors and not head.is_scaled:
        notes.append(f"the same without this file: {_flags(source, head, values)}")
    if all(tensor.kind in UNQUANTISED for tensor in head.tensors):
        smaller = shlex.quote(str(out.with_name(f"{out.stem}-Q4_K_M{GGUF}")))
        notes.append(f"a smaller file: llama-quantize {shlex.quote(str(out))} {smaller} Q4_K_M")
    modelfile = f"FROM ./{out.name}\\nPARAMETER num_ctx {stated.length}\\n"
    notes.append(f"for Ollama, beside the file: printf '{modelfile}' > Modelfile && ollama create NAME -f Modelfile")
    return notes


def _flags(source: Path, head: GgufHead, values: Mapping[str, int | float | str]) -> str:
    """llama.cpp's own options for a file as it is; what has none of its own is overridden in the metadata."""
    words = [f"llama-server -m {shlex.quote(str(source))} -c {values['context_length']}"]
    for name, value in values.items():
        if name == "rope.freq_base" and value == head.rope("freq_base"):
            continue
        kind, written = ("float", f"{value:.9g}") if isinstance(value, float) else ("int", str(value))
        key = f"--override-kv {head.architecture}.{name}={kind}:"
        words.append(f"{OPTIONS[name]} {written}" if name in OPTIONS else f"{key}{written}")
    return " ".join(words)
