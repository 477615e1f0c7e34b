"""Text to train on and to measure on, as documents with names; which are held out is read off the name.

python                    the sources of this Python's standard library and of the packages installed beside it
stdlib                    of the standard library alone: every machine has it
folder:PATH               every text file below a folder
FILE.jsonl, FILE.parquet  one document a row
hub:NAME[/CONFIG]:FIELD   a data set of the Hugging Face hub, read as it streams
all:SOURCE                any of these with nothing held out, for text that no model of yours is trained on
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError, Unreadable
from ropewalk.files import holds, json_lines, require_text, why

Split = Literal["train", "held out"]

WHOLE = "all:"
ONE_IN = 16  # documents is held out
SHORTEST, LONGEST = 200, 2_000_000  # characters of a document worth reading
TEXTS = (".txt", ".md", ".rst", ".py", ".html", ".tex", ".org")
FIELDS = ("text", "content", "document", "body")


class Document(NamedTuple):
    """A text, and the name that decides its split."""

    name: str
    text: str


def split_of(name: str) -> Split:
    """Where a document belongs, wherever and whenever one asks."""
    mark = hashlib.sha256(name.encode("utf-8", "surrogateescape"))  # a file's name may be bytes that are no text
    return "held out" if int(mark.hexdigest()[:8], 16) % ONE_IN == 0 else "train"


def documents(source: str, split: Split | None = None, *, most: int | None = None) -> Iterator[Document]:
    """The documents of a source that belong to a split, at most so many characters of them; nothing comes twice."""
    wanted = None if source.startswith(WHOLE) else split
    found = _without_copies(_read(source.removeprefix(WHOLE)))
    kept = (each for each in found if wanted is None or split_of(each.name) == wanted)
    characters = 0
    for each in kept:
        if most is not None and characters >= most:
            return
        characters += len(each.text)
        yield each
    if not characters:
        rule = f"a source with documents of at least {SHORTEST} characters ({wanted or 'any split'})"
        raise DoesNotFit("corpus", rule, source, remedy=more_of(source) if wanted == "held out" else "name another")


def more_of(source: str) -> str:
    """What helps where too little is held out."""
    if source.startswith(WHOLE):
        return "name one with more documents"
    held = f"one document in {ONE_IN} is held out, by its name"
    return f"name one with more documents ({held}), or {WHOLE}{source} where no model was trained on it"


def _without_copies(found: Iterator[Document]) -> Iterator[Document]:
    seen: set[bytes] = set()
    for each in found:
        mark = hashlib.sha256(require_text(each.text, each.name)).digest()
        if SHORTEST <= len(each.text) <= LONGEST and mark not in seen:
            seen.add(mark)
            yield each


def _read(source: str) -> Iterator[Document]:
    kind, _, rest = source.partition(":")
    if source == "python":
        return _python("stdlib", "purelib")
    if source == "stdlib":
        return _python("stdlib")
    if kind == "folder":
        return _folder(_existing(rest))
    if kind == "hub":
        return _hub(rest)
    if source.endswith((".jsonl", ".parquet")):
        return _table(_existing(source))
    if source and holds(Path(source).is_dir):
        return _folder(Path(source))
    known = ["python", "stdlib", "folder:PATH", "FILE.jsonl", "FILE.parquet", "hub:NAME:FIELD", "all:SOURCE"]
    raise InvalidValue("corpus", f"one of {', '.join(known)}", source)


def _existing(path: str) -> Path:
    try:
        found = Path(path).expanduser()
    except RuntimeError as wrong:  # the home of somebody who is not known
        raise Unreadable("corpus", "a path that exists", path, remedy=why(wrong)) from wrong
    if not path or not holds(found.exists):
        raise Unreadable("corpus", "a path that exists", path)
    return found


def _python(*kinds: str) -> Iterator[Document]:
    """In an order that neither the machine nor the release decides: by the hash of the name."""
    files: dict[str, Path] = {}
    for kind in kinds:
        root = Path(sysconfig.get_path(kind))
        for path in root.rglob("*.py"):
            inside = path.relative_to(root)
            if kind == "purelib" or "site-packages" not in inside.parts:
                files[f"{kind}/{inside.as_posix()}"] = path
    for name in sorted(files, key=lambda name: hashlib.sha256(name[::-1].encode()).digest()):
        yield Document(name, _text_of(files[name]))


def _folder(root: Path) -> Iterator[Document]:
    if not root.is_dir():
        raise Unreadable("corpus", "a folder", str(root), remedy=f"say {root} for a .jsonl or .parquet file")
    paths = [path for path in root.rglob("*") if path.suffix.lower() in TEXTS and holds(path.is_file)]
    for path in sorted(paths):
        yield Document(path.relative_to(root).as_posix(), _text_of(path))


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError as wrong:
        raise Unreadable("corpus", "files that may be read", str(path), remedy=why(wrong)) from wrong


def _table(path: Path) -> Iterator[Document]:
    rows = (row for _, row in json_lines(path, "corpus")) if path.suffix == ".jsonl" else _parquet(path)
    for number, row in enumerate(rows):
        yield Document(f"{path.name}/{number}", _text(row, path))


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    return _streamed(str(path), "a parquet file", "parquet", data_files=str(path))


def _hub(rest: str) -> Iterator[Document]:
    name, _, field = rest.partition(":")
    rows = _streamed(f"hub:{rest}", "a data set that is there, as hub:NAME:FIELD", *_name_and_config(name))
    for number, row in enumerate(rows):
        yield Document(f"{name}/{number}", _text(row, name, (field,) if field else FIELDS))


def _streamed(source: str, rule: str, *what: str, **given: str) -> Iterator[dict[str, Any]]:
    """The rows of a data set. Files can be broken in more ways than their readers have errors for."""
    from datasets import load_dataset

    try:
        yield from load_dataset(*what, split="train", streaming=True, **given)
    except (RopewalkError, MemoryError):
        raise
    except Exception as wrong:
        raise Unreadable("corpus", rule, source, remedy=f"{type(wrong).__name__}: {why(wrong)}") from wrong


def _name_and_config(name: str) -> tuple[str, ...]:
    """OWNER/NAME/CONFIG, or a folder or OWNER/NAME without one."""
    parts = name.split("/")
    return (name,) if Path(name).exists() or len(parts) < 3 else ("/".join(parts[:2]), parts[2])


def _text(row: Any, where: object, fields: Iterable[str] = FIELDS) -> str:
    field = next((field for field in fields if isinstance(row, dict) and isinstance(row.get(field), str)), None)
    if field is None:
        names = sorted(row) if isinstance(row, dict) else type(row).__name__
        raise Unreadable(f"a row of {where}", f"one with text under {' or '.join(fields)}", names)
    return str(row[field])


def sample(source: str, split: Split, count: int) -> list[Document]:
    """The first so many documents of a split."""
    return list(islice(documents(source, split), count))
