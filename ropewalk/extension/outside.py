"""Methods that others bring: in an installed package (entry points of `ropewalk.methods`), or in a file of the user's.

A line names the first by its name, `slope:factor=8`, and the second by its file, `./my.py:Slope:factor=8`. JSON keeps
the package, or the file's name and hash. A file that lies beside that JSON runs only if its hash is that one and the
caller allowed the folder's code; one whose path the user wrote runs, and is known from then on.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.errors import Conflict, InvalidValue, NotInstalled, UnknownName, Unreadable
from ropewalk.extension.notation import BARE, FILE, INSTEAD
from ropewalk.extension.outside_code import (
    METHODS,
    PLAIN_NAME,
    SourceFile,
    classes_of,
    code_in,
    load_offer,
    mark_of,
    offers_of,
    package_of,
    packages_of,
    require_different,
    require_name_of,
    send_with,
)
from ropewalk.files import holds, read_bytes, read_json, why
from ropewalk.folders import whole_file
from ropewalk.methods import docstrings
from ropewalk.methods.biases import Bias
from ropewalk.methods.decoding import Decoding
from ropewalk.methods.facts import MODEL
from ropewalk.methods.frequencies import Frequencies
from ropewalk.methods.positions import Positions
from ropewalk.methods.reach import Reach
from ropewalk.methods.record import parameters
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import OF_ORIGIN, OURS, Json, Origin, Spec
from ropewalk.methods.surgery import Surgery

FAMILIES = (Frequencies, Reach, Bias, Scale, Positions, Decoding, Surgery)
FIELD = "extension"
PAGE = "CONTRIBUTING.md has an example"
RECORD = "write @dataclass(frozen=True, kw_only=True) above it"
TRUSTED = "trust_remote_code=True, or --trust-remote-code"

_KNOWN: dict[str, SourceFile] = {}  # files that may run in this process, by their hash


class FileMethod(NamedTuple):
    """A method of a file, as JSON has it."""

    name: str
    file: str
    sha256: str


def require_method(candidate: Any, where: str) -> type[Spec]:
    """The class, if it is a method that an extension can hold."""
    title = getattr(candidate, "__name__", repr(candidate))
    if not (isinstance(candidate, type) and issubclass(candidate, FAMILIES)) or candidate in FAMILIES:
        families = ", ".join(family.__name__ for family in FAMILIES)
        sentence = f"{title} in {where} is no method"
        raise InvalidValue.because(FIELD, sentence, remedy=f"extend one of {families}; {PAGE}")
    if "__dataclass_params__" not in vars(candidate):
        raise InvalidValue.because(FIELD, f"the class {title} in {where} is no record", remedy=RECORD)
    name = getattr(candidate, "name", "")
    if not isinstance(name, str) or not re.fullmatch(PLAIN_NAME, name):
        sentence = f"the method {title} in {where} needs a name of letters, digits and underscores"
        raise InvalidValue.because(FIELD, sentence, remedy='write name = "..."')
    if name in _our_names():
        sentence = f"the method {name} of {where} has the name of a method, a preset or a word of Ropewalk"
        raise Conflict.because(FIELD, sentence, remedy="give it another name")
    missing = [one for one in dir(candidate) if getattr(getattr(candidate, one, None), "__isabstractmethod__", False)]
    if missing:
        raise InvalidValue.because(FIELD, f"the method {name} in {where} has no function {missing[0]}", remedy=PAGE)
    _require_fields(candidate, where)
    return candidate


def _require_fields(kind: type[Spec], where: str) -> None:
    """Refuse fields whose types cannot be read, and fields that JSON has for itself."""
    try:
        fields = [parameter.name for parameter in parameters(kind)]
    except Exception as wrong:  # whatever an annotation raises
        said = f"{type(wrong).__name__}: {why(wrong)}"
        sentence = f"the types of the method {kind.name} in {where} cannot be read: {said}"
        raise InvalidValue.because(FIELD, sentence, remedy="import the types that it names") from wrong
    for name in fields:
        if name in ("name", "origin", *OF_ORIGIN):
            sentence = f"the method {kind.name} in {where} has a parameter {name}, which means another thing in JSON"
            raise InvalidValue.because(FIELD, sentence, remedy="give the parameter another name")


@cache
def _our_names() -> frozenset[str]:
    """The names of all methods and presets, and the words that mean something else."""
    return frozenset((*(name.rpartition(".")[2] for name in docstrings.names()), BARE, INSTEAD, MODEL))


# Methods of installed packages.


def offered_names() -> dict[str, str]:
    """The names of all offered methods, each with its packages. None is imported."""
    return packages_of(METHODS)


def offered(name: str) -> type[Spec] | None:
    """The method that an installed package offers by this name; None where none does."""
    points = offers_of(METHODS).get(name)
    return None if points is None else _loaded(points)


def require_unclashed(name: str) -> None:
    """Refuse a name of ours that an installed package takes too: it would never be found."""
    if name in _clashes(tuple(sys.path)):
        sentence = f"the method {name} of {_clashes(tuple(sys.path))[name]} has the name of one of Ropewalk"
        raise Conflict.because(FIELD, sentence, remedy="uninstall that package, or give its method another name")


@cache
def _clashes(path: tuple[str, ...]) -> dict[str, str]:
    """Offered names that are ours, with their packages; read once for each `sys.path`."""
    return {name: where for name, where in offered_names().items() if name in _our_names()}


def _loaded(points: list[EntryPoint]) -> type[Spec]:
    where = package_of(points[0])
    kind = require_method(load_offer(points, "method", FIELD), where)
    require_name_of(points[0], kind, "method", FIELD)
    if vars(kind).get("origin", OURS) == OURS:
        kind.origin = Origin(package=where)
    return kind


def recognise(kind: type[Spec]) -> None:
    """Note the package of a class that was imported by hand, where it offers the class."""
    if kind.__module__.partition(".")[0] == "ropewalk" or "origin" in vars(kind):
        return
    leads = f"{kind.__module__}:{kind.__qualname__}"
    for points in offers_of(METHODS).values():
        if any(point.value.replace(" ", "") == leads for point in points):
            _loaded(points)


def source_marks(methods: Iterable[Spec]) -> dict[str, str]:
    """A hash of the module of each method of a package: part of the key of what is measured under it."""
    outside = {type(spec) for spec in methods if spec.origin.package}
    return {kind.name: mark for kind in sorted(outside, key=lambda kind: kind.name) if (mark := formula_mark(kind))}


def formula_mark(kind: type[Spec]) -> str:
    """A hash of a method: of a file of the user's whole, of a package's what computes; empty where none can be read."""
    if (origin := vars(kind).get("origin", OURS)).sha256:
        return str(origin.sha256[:16])
    with suppress(OSError, TypeError, KeyError):
        return mark_of(code_in(inspect.getsource(sys.modules[kind.__module__])).encode())
    return ""


# Methods in a file of the user's.


def method_on_line(name: str) -> type[Spec]:
    """The method that a line names by its file, which runs: `./my.py:Slope`, or `./my.py` where it has one alone."""
    path, _, title = name.partition(f"{FILE}:")
    path = path if path.endswith(FILE) else path + FILE
    if not holds(Path(path).is_file):
        raise Unreadable(FIELD, "the path of a file that exists, with a method, such as ./my.py:Slope", path)
    source = SourceFile.read(path, FIELD, "a file with a method")
    kind = _method_in(source, title)
    _KNOWN[source.sha256] = source
    return kind


def _method_in(source: SourceFile, title: str) -> type[Spec]:
    """A method of a file, by its class or by its name; the only one where neither is said."""
    module = source.module(FIELD)
    kinds = [kind for kind in classes_of(module) if issubclass(kind, Spec)]
    require_different([kind for kind in kinds if hasattr(kind, "name")], "method", FIELD, source.path)
    titles = [kind.__name__ for kind in kinds]
    named = [kind for kind in kinds if title in (kind.__name__, getattr(kind, "name", ""))] if title else kinds
    if title and not named and hasattr(module, title):
        return require_method(getattr(module, title), source.path)
    if not kinds:
        raise Unreadable.because(FIELD, f"{source.path} has no method", remedy=f"write a class that is one; {PAGE}")
    if not named:
        raise UnknownName("method", title, known=titles, owner=source.path)
    if len(named) > 1:
        remedy = f"name one, as in {source.path}:{titles[0]}"
        raise InvalidValue.because(FIELD, f"{source.path} has several methods: {', '.join(titles)}", remedy=remedy)
    kind = require_method(named[0], source.path)
    known = "origin" in vars(kind)
    # The same text under another path is the same class; it is called by the path that was written last.
    kind.origin = Origin(file=source.name, sha256=source.sha256, written=f"{source.path}:{kind.__name__}")
    if not known:
        send_with(kind, source, _receive)
    return kind


def _receive(path: str, text: bytes, title: str, values: Json) -> Spec:
    """A method in the process that it was sent to."""
    source = SourceFile(path, text)
    kind = _method_in(source, title)
    _KNOWN[source.sha256] = source
    return kind(**values)


# Methods in JSON, and the files beside it.


def stored_method(values: Mapping[str, Any]) -> type[Spec]:
    """The method of a JSON object that names a package or a file."""
    if "package" in values:
        return _of_package(str(values["name"]), str(values["package"]))
    method = _file_method(values)
    if method.sha256 not in _KNOWN:
        remedy = f"name the file on the line, ./{method.file}:{method.name}, or load its folder with {TRUSTED}"
        sentence = f"the method {method.name} comes from the file {method.file}, which was not allowed to run here"
        raise Unreadable.because(FIELD, sentence, remedy=remedy)
    return _method_in(_KNOWN[method.sha256], method.name)


def _of_package(name: str, package: str) -> type[Spec]:
    kind = offered(name)
    if kind is None:
        sentence = f"the method {name} is of the package {package}, which is not installed here, or does not offer it"
        raise NotInstalled.because(FIELD, sentence, remedy=f"pip install {package}")
    if kind.origin.package != package:
        sentence = f"the method {name} was of the package {package}, and here {kind.origin.package} offers it"
        raise Conflict.because(FIELD, sentence, remedy=f"install {package} in its place")
    return kind


def _file_method(values: Mapping[str, Any]) -> FileMethod:
    method = FileMethod(*(values.get(key) for key in FileMethod._fields))  # type: ignore[arg-type]
    if not all(isinstance(part, str) for part in method) or Path(method.file).name != method.file:
        rule = "one whose method has a name, a file of the same folder and its sha256"
        raise Unreadable(FIELD, rule, {key: values.get(key) for key in FileMethod._fields})
    if not method.file.endswith(FILE):
        raise Unreadable(FIELD, f"one whose method is in a file that ends in {FILE}", method.file)
    return method


def files_in(values: Any) -> Iterator[FileMethod]:
    """The methods of files in a JSON object of any depth."""
    if isinstance(values, Mapping):
        if "file" in values and "sha256" in values:
            yield _file_method(values)
        values = list(values.values())
    if isinstance(values, list | tuple):
        for value in values:
            yield from files_in(value)


def is_known(method: FileMethod) -> bool:
    """Whether a file with its hash may run in this process already."""
    return method.sha256 in _KNOWN


def admit(values: Any, folder: Path, *, trusted: bool) -> None:
    """Let the methods run that lie as files in the folder of a JSON: those with its hash, if their code is trusted."""
    for method in dict.fromkeys(files_in(values)):
        place = folder / method.file
        if not holds(place.is_file):
            sentence = f"{folder} has no {method.file}, from which its method {method.name} comes"
            raise Unreadable.because(FIELD, sentence, remedy="copy it there from where the model was saved")
        source = SourceFile.read(str(place), FIELD, "one whose files can be read")
        if source.sha256 != method.sha256:
            hashes = f"its hash begins with {source.sha256[:12]}, and not with {method.sha256[:12]}"
            remedy = "copy the file there from where the model was saved, or save the model again"
            raise Unreadable.because(FIELD, f"{place} is not the file that {method.name} was: {hashes}", remedy=remedy)
        if source.sha256 not in _KNOWN:
            if not trusted:
                sentence = f"the method {method.name} comes with {folder} as code, in {method.file}"
                raise Unreadable.because(FIELD, sentence, remedy=f"read that file, then pass {TRUSTED}")
            _KNOWN[source.sha256] = source


def require_portable(methods: Iterable[Spec]) -> None:
    """Refuse methods that nobody could load again: of a session, or of a module that no package offers."""
    for spec in methods:
        kind = type(spec)
        if kind.__module__.partition(".")[0] != "ropewalk" and spec.origin == OURS:
            title = kind.__name__
            sentence = f"the method {spec.name} is {title} of the module {kind.__module__}, where nobody finds it again"
            remedy = f"take it from its file, as rw.parse('./my.py:{title}:...') does, or offer it as an entry point"
            raise InvalidValue.because(FIELD, sentence, remedy=remedy)


def write_files(methods: Iterable[Spec], folder: Path, *, earlier: Path | None = None) -> None:
    """Write the files of methods into a folder; `earlier` is JSON there, whose files are replaced."""
    replaced = {method.file for method in _earlier(earlier)}
    for digest in dict.fromkeys(spec.origin.sha256 for spec in methods if spec.origin.sha256):
        source, place = _KNOWN[digest], folder / _KNOWN[digest].name
        if holds(place.exists) and source.name not in replaced and read_bytes(place, FIELD, "a file") != source.text:
            sentence = f"the folder has another file named {source.name} already"
            raise Conflict.because(FIELD, sentence, remedy="rename the method's file, and name it so on the line")
        with whole_file(place) as file:
            file.write(source.text)
        replaced.discard(source.name)


def _earlier(place: Path | None) -> list[FileMethod]:
    if place is None or not holds(place.is_file):
        return []
    with suppress(Unreadable):
        return list(files_in(read_json(read_bytes(place, FIELD, "JSON"), FIELD)))
    return []
