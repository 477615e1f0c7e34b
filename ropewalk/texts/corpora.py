"""Text to train on and to measure on, as documents with names; a document's project decides whether it is held out.

A project is a package, a module with its tests, or a folder directly below that of a corpus; it is held out by a hash
of its name. A row of a file or of a data set is one too, by a hash of its text: a renamed or sorted file keeps its
split. Some held-out documents also stand in the training part: vendored packages, generated twins. They are left out if
more than a tenth of their long lines do, or of their stretches of 48 bytes where long lines are few (near_copies.py).
Data sets of the hub are streamed, so they are not searched for such copies.

A text that is longer than the documents is made of a series of them, one after the other in the order of their names:
the files of a project, or all descriptions (measure/material/passage_search.py). A row belongs to no series.

Texts of less than 200 characters are skipped. Longer ones than 16 million are cut into documents of one project.

python                    the sources of this Python's standard library and of its installed packages
stdlib                    only the standard library, which every machine has
recent[:YEAR]             the sources of installed packages that say that they are of YEAR (2026) or later
descriptions              what installed packages say of themselves: prose about code, in Markdown
prose                     the same, and the reference of the language Python
folder:PATH               every text file below a folder
FILE.jsonl, FILE.parquet  one document per row
hub:NAME[/CONFIG]:FIELD   a data set of the Hugging Face hub, streamed
A+B                       several of them, in turns of equally many characters while both have any
all:SOURCE                any of these with nothing held out, for text that the model was not trained on
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError, Unreadable
from ropewalk.files import holds, json_lines, require_text, text_in_pieces, why
from ropewalk.texts.installed_texts import PYTHON, STDLIB, descriptions, recent_sources, reference, sources
from ropewalk.texts.near_copies import Content, KnownTexts

Split = Literal["train", "held out"]
Item = TypeVar("Item")

WHOLE = "all:"
ROW = "#"  # in the name of a row, before its number
ONE_IN = 16  # one project in this many is held out
CODE = ".py"
INSTALLED = ("python", "stdlib", "recent", "descriptions", "prose")  # what does not change while a process runs
RECENT = 2026  # the year of sources that are recent, where none is asked for
SHORTEST_TEXT, LONGEST_TEXT = 200, 16_000_000  # characters of a document: shorter ones are skipped, longer ones cut
TEXTS = (".txt", ".md", ".rst", ".py", ".html", ".tex", ".org")
FIELDS = ("text", "content", "document", "body")


class Document(NamedTuple):
    """A text with its name; its project decides its split."""

    name: str
    text: str
    stated_project: str = ""  # where the name does not say it
    series: str = ""  # what it is joined with to a longer text; nothing where it has none

    @property
    def project(self) -> str:
        """What is held out as a whole."""
        return self.stated_project or project_of(self.name)

    @property
    def split(self) -> Split:
        """The split of its project."""
        return _split(self.project)


def project_of(name: str) -> str:
    """The project of a file: the tests of a module of the standard library, and its parts in C, belong to it."""
    kind, _, inside = name.partition("/")
    if kind not in PYTHON or not inside:
        return kind
    first, _, rest = inside.partition("/")
    if kind == STDLIB and first == "test" and rest:
        first = rest.partition("/")[0]
    return f"{kind}/{first.removesuffix('.py').removeprefix('test_').lstrip('_')}"


def split_of(name: str) -> Split:
    """The split of a file, always and everywhere the same."""
    return _split(project_of(name))


def _split(project: str) -> Split:
    mark = hashlib.sha256(project.encode("utf-8", "surrogateescape"))  # a file name may be bytes, not text
    return "held out" if int(mark.hexdigest()[:8], 16) % ONE_IN == 0 else "train"


def projects_in_turn(by_project: Iterable[tuple[str, Item]]) -> Iterator[tuple[str, Item]]:
    """Items of documents, each with its project: one of every project first, then a second of each that has one, ...

    A measurement on a few texts would otherwise be one of the project with the most files. Items are read only as far
    as needed, so a stream whose rows are projects stays a stream.
    """
    waiting: dict[str, deque[Item]] = {}
    for project, item in by_project:
        if project in waiting:
            waiting[project].append(item)
        else:
            waiting[project] = deque()
            yield project, item
    while waiting := {project: items for project, items in waiting.items() if items}:
        for project, items in waiting.items():
            yield project, items.popleft()


def documents(source: str, split: Split | None = None, *, most: int | None = None) -> Iterator[Document]:
    """The documents of a source, without duplicates.

    Args:
        source: such as python, folder:PATH or A+B, as listed above.
        split: the part of it; by default all.
        most: characters, or a little more; by default no limit.
    """
    only = None if source.startswith(WHOLE) else split
    copied = near_copies(source) if only == "held out" else frozenset[bytes]()
    characters, left_out = 0, Counter[str]()
    for mark, document in _distinct(_read(source.removeprefix(WHOLE)), left_out):
        if only is not None and (document.split != only or mark in copied):
            left_out["near copies of these" if document.split == only else f"in its {document.split} part"] += 1
            continue
        if most is not None and characters >= most:
            return
        characters += len(document.text)
        yield document
    if not characters:
        raise _nothing(source, only, left_out)


def require_source(source: str) -> None:
    """Refuse a source of no known kind, or of a path that is not there; nothing of it is read."""
    for part in _parts(source.removeprefix(WHOLE)):
        if part not in INSTALLED:
            _one(part)


def _nothing(source: str, only: Split | None, left_out: Counter[str]) -> DoesNotFit:
    """The error where no document is left, with what became of them."""
    part = f" in its {only} part" if only else ""
    has = ", ".join(f"{count} {what}" for what, count in left_out.items()) or "none at all"
    others = any(what.startswith("in its") for what in left_out)  # which could be read
    more = more_of(source) if only == "held out" and others else "give another"
    rule = f"a source with documents of at least {SHORTEST_TEXT} characters{part}"
    return DoesNotFit("corpus", rule, source, remedy=f"it has {has}; {more}")


def near_copies(source: str) -> frozenset[bytes]:
    """The marks of the held-out documents of a source of which a part stands in its training part as well."""
    kinds = {part.partition(":")[0] for part in _parts(source)}
    if "hub" in kinds:
        return frozenset()
    return _installed_copies(source) if kinds <= set(INSTALLED) else _copies(source)


@lru_cache
def _installed_copies(source: str) -> frozenset[bytes]:
    """Read once."""
    return _copies(source)


def _copies(source: str) -> frozenset[bytes]:
    """By marks, since documents of two sources may have one name."""
    trained, held_out = KnownTexts(), dict[bytes, Content]()
    for mark, document in _distinct(_read(source), Counter()):
        content = Content.of(document.text, code=document.name.endswith(CODE))
        if document.split == "train":
            trained.add(content)
        else:
            held_out[mark] = content
    return frozenset(mark for mark, content in held_out.items() if trained.have(content))


def more_of(source: str) -> str:
    """The remedy where too little is held out."""
    if source.startswith(WHOLE):
        return "give one with more documents"
    held = f"one project in {ONE_IN} is held out; each row, or file or folder at the top of a folder, is one"
    return f"give one with more projects ({held}), or {WHOLE}{source} if the model was not trained on it"


def _distinct(all_documents: Iterator[Document], left_out: Counter[str]) -> Iterator[tuple[bytes, Document]]:
    """Every text that is long enough, once, with its mark; documents of one name are told apart."""
    seen, names = set[bytes](), Counter[str]()
    for document in all_documents:
        mark = hashlib.sha256(require_text(document.text, document.name)).digest()
        if len(document.text) < SHORTEST_TEXT:
            left_out["that are shorter"] += 1
        elif mark not in seen:
            seen.add(mark)
            yield mark, document._replace(name=_tell_apart(document.name, names), stated_project=document.project)


def _tell_apart(name: str, names: Counter[str]) -> str:
    """The name or, where another document has it, one with a number."""
    names[name] += 1
    return name if names[name] == 1 else _tell_apart(f"{name} ({names[name]})", names)


def _parts(source: str) -> list[str]:
    """The sources that stand between plus signs; a path that exists may contain them."""
    pieces, parts = source.split("+"), list[str]()
    while pieces:
        paths = [n for n in range(1, len(pieces) + 1) if _exists("+".join(pieces[:n]).removeprefix("folder:"))]
        parts.append("+".join(pieces[: max(paths, default=1)]))
        del pieces[: max(paths, default=1)]
    return parts


def _exists(path: str) -> bool:
    return holds(lambda: Path(path).expanduser().exists())


def _read(source: str) -> Iterator[Document]:
    parts = _parts(source)
    return _take_turns([_one(part) for part in parts]) if len(parts) > 1 else _one(source)


def _take_turns(sources: list[Iterator[Document]]) -> Iterator[Document]:
    """Always of the source that has given the fewest characters, until all have ended."""
    characters = dict.fromkeys(range(len(sources)), 0)
    while characters:
        least = min(characters, key=lambda place: characters[place])
        document = next(sources[least], None)
        if document is None:
            del characters[least]
        else:
            characters[least] += len(document.text)
            yield document


def _one(source: str) -> Iterator[Document]:
    kind, _, rest = source.partition(":")
    if kind in INSTALLED and (kind == "recent" or source == kind):
        return _installed_documents(kind, rest)
    if kind == "folder":
        return _folder(_existing(rest))
    if kind == "hub":
        return _hub(rest)
    if source.endswith((".jsonl", ".parquet")):
        return _table(_existing(source))
    if source and holds(Path(source).is_dir):
        return _folder(Path(source))
    others = ["folder:PATH", "FILE.jsonl", "FILE.parquet", "hub:NAME:FIELD", "A+B", "all:SOURCE"]
    raise InvalidValue("corpus", f"one of {', '.join([*INSTALLED, *others])}", source)


def _installed_documents(kind: str, rest: str) -> Iterator[Document]:
    if kind == "python":
        return _shuffle(sources(*PYTHON))
    if kind == "stdlib":
        return _shuffle(sources(STDLIB))
    if kind == "recent":
        return _shuffle(recent_sources(_year(rest)))
    described = (Document(name, text, series="descriptions") for name, text in descriptions())
    topics = (Document(name, text, series=project_of(name)) for name, text in reference())
    return chain(topics, described) if kind == "prose" else described


def _year(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) == len(str(RECENT))):
        raise InvalidValue("corpus", f"recent or recent:YEAR, as recent:{RECENT}", f"recent:{text}")
    return int(text or RECENT)


def _existing(path: str) -> Path:
    try:
        place = Path(path).expanduser()
    except RuntimeError as wrong:  # the home of an unknown user
        raise Unreadable("corpus", "a path that exists", path, remedy=why(wrong)) from wrong
    if not path or not holds(place.exists):
        raise Unreadable("corpus", "a path that exists", path)
    return place


def _folder(root: Path) -> Iterator[Document]:
    if not root.is_dir():
        raise Unreadable(
            "corpus", "a folder", str(root), remedy=f"give {root} without folder: for a .jsonl or .parquet file"
        )
    paths = (path for path in root.rglob("*") if path.suffix.lower() in TEXTS and holds(path.is_file))
    yield from _shuffle({path.relative_to(root).as_posix(): path for path in paths})


def _shuffle(files: dict[str, Path]) -> Iterator[Document]:
    """Ordered by the hash of the name, the same everywhere: the first few are a sample of all folders."""
    for name in sorted(files, key=lambda name: hashlib.sha256(name[::-1].encode(errors="surrogateescape")).digest()):
        pieces, project = text_in_pieces(files[name], "corpus", "readable files", LONGEST_TEXT), project_of(name)
        yield from (Document(name, text, project, series=project) for text in pieces)


def _table(path: Path) -> Iterator[Document]:
    rows = (row for _, row in json_lines(path, "corpus")) if path.suffix == ".jsonl" else _parquet(path)
    for number, row in enumerate(rows):
        yield from _row(f"{path.name}{ROW}{number}", _text(row, path))


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    return _stream(str(path), "a parquet file", "parquet", data_files=str(path))


def _hub(rest: str) -> Iterator[Document]:
    name, _, field = rest.partition(":")
    rows = _stream(f"hub:{rest}", "an existing data set, as hub:NAME:FIELD", *_name_and_config(name))
    for number, row in enumerate(rows):
        yield from _row(f"{name}{ROW}{number}", _text(row, name, (field,) if field else FIELDS))


def _row(name: str, text: str) -> Iterator[Document]:
    """A row is its own project, by its text: neither the file's name nor the row's place may change its split."""
    project = f"row {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    yield from (Document(name, text[n : n + LONGEST_TEXT], project) for n in range(0, max(1, len(text)), LONGEST_TEXT))


def _stream(source: str, rule: str, *names: str, **options: str) -> Iterator[dict[str, Any]]:
    """The rows of a data set. Readers of broken files raise errors of many kinds."""
    from datasets import load_dataset

    try:
        yield from load_dataset(*names, split="train", streaming=True, **options)
    except (RopewalkError, MemoryError):
        raise
    except Exception as wrong:
        raise Unreadable("corpus", rule, source, remedy=f"{type(wrong).__name__}: {why(wrong)}") from wrong


def _name_and_config(name: str) -> tuple[str, ...]:
    """OWNER/NAME/CONFIG, or a folder or OWNER/NAME without one."""
    parts = name.split("/")
    return (name,) if Path(name).exists() or len(parts) < 3 else ("/".join(parts[:2]), parts[2])


def _text(row: Any, where: object, fields: Iterable[str] = FIELDS) -> str:
    """The first text of a row that is not empty: an empty field may stand beside a full one."""
    values = [row.get(field) for field in fields] if isinstance(row, dict) else []
    texts = [value for value in values if isinstance(value, str)]
    if not texts:
        names = sorted(row) if isinstance(row, dict) else type(row).__name__
        raise Unreadable(f"a row of {where}", f"one with text under {' or '.join(fields)}", names)
    return next((text for text in texts if text.strip()), "")


def sample(source: str, split: Split, count: int) -> list[Document]:
    """The first `count` documents of a split."""
    return list(islice(documents(source, split), count))
