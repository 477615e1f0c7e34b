"""Code that others bring: a file of the user's, run as a module, or an entry point of an installed package.

A file runs only where somebody named its path, or allowed the code of the folder that it lies in. The name of its
module has a hash of the file: after a change it is another module, with other classes.
"""

from __future__ import annotations

import ast
import copyreg
import io
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ropewalk.errors import Conflict, InvalidValue, RopewalkError, Unreadable, short_repr
from ropewalk.files import read_bytes, why
from ropewalk.methods.record import parameters

FILE_MODULE = "ropewalk_file_"  # begins the name of a module that was read from a file of the user's
PLAIN_NAME = r"[A-Za-z_]\w*"
METHODS = "ropewalk.methods"  # the group of entry points of methods


class SourceFile(NamedTuple):
    """A Python file, as it was read: what is hashed is what runs."""

    path: str  # as it was written
    text: bytes

    @classmethod
    def read(cls, path: str, field: str, rule: str) -> SourceFile:
        """The file of a path."""
        return cls(path, read_bytes(Path(path), field, rule))

    @property
    def name(self) -> str:
        """Its name, without its folder."""
        return Path(self.path).name

    @property
    def sha256(self) -> str:
        """The hash of its bytes."""
        return sha256(self.text).hexdigest()

    def module(self, field: str) -> ModuleType:
        """The file as a module, run once in each process; `field` is what it is for, in errors."""
        name = FILE_MODULE + mark_of(self.text)
        if name in sys.modules:
            return sys.modules[name]
        module = ModuleType(name)
        module.__file__ = self.path
        sys.modules[name] = module  # records look up their module
        try:
            self._run(module, field)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def _run(self, module: ModuleType, field: str) -> None:
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                exec(compile(self.text, self.path, "exec"), module.__dict__)
        except RopewalkError:
            raise
        except (Exception, SystemExit) as wrong:
            sentence = f"{self.path} cannot be run: {_place(wrong, self.path)}{type(wrong).__name__}: {why(wrong)}"
            raise Unreadable.because(field, sentence, remedy="correct it") from wrong
        if printed.getvalue():
            sentence = f"{self.path} prints when it is read: {short_repr(printed.getvalue().strip())}"
            raise Unreadable.because(field, sentence, remedy="remove that: what a command prints is its result")


def mark_of(text: bytes) -> str:
    """A short hash of a file."""
    return sha256(text).hexdigest()[:16]


def code_in(text: str) -> str:
    """The lines of a file that compute: without docstrings, comments, imports and empty lines."""
    lines, kinds, dropped = text.splitlines(), (ast.Module, ast.ClassDef, ast.FunctionDef), list[ast.stmt]()
    for node in ast.walk(ast.parse(text)):
        dropped += [node] if isinstance(node, ast.Import | ast.ImportFrom) else []
        dropped += [node.body[0]] if isinstance(node, kinds) and ast.get_docstring(node, clean=False) else []
    for statement in dropped:
        whole = slice(statement.lineno - 1, statement.end_lineno)
        lines[whole] = [""] * len(lines[whole])
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def send_with(kind: type[Any], source: SourceFile, receive: Callable[..., Any]) -> None:
    """Let records of this class travel to other processes with their file; `receive` makes them there.

    It is called with the path, the text of the file, the name of the class, and the values of the record.
    """

    def reduced(record: Any) -> tuple[Any, ...]:
        values = {parameter.name: getattr(record, parameter.name) for parameter in parameters(kind)}
        return receive, (*source, kind.__name__, values)

    copyreg.pickle(kind, reduced)


def classes_of(module: ModuleType) -> list[type]:
    """The classes that a module defines, without those whose names begin with an underscore."""
    defined = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    classes = dict.fromkeys(value for value in defined if isinstance(value, type))  # one can have two names
    return [value for value in classes if not value.__name__.startswith("_")]


def require_different(named: Iterable[Any], kind: str, field: str, path: str) -> None:
    """Refuse a file in which two classes have one `name`; `kind` is what they are."""
    names = [one.name for one in named]
    for name in names:
        if names.count(name) > 1:
            sentence = f"{path} has {names.count(name)} {kind}s of the name {name}"
            raise Conflict.because(field, sentence, remedy="give each a name of its own")


def _place(wrong: BaseException, path: str) -> str:
    """The line of the file where it went wrong."""
    lines = [line for frame, line in traceback.walk_tb(wrong.__traceback__) if frame.f_code.co_filename == path]
    line = wrong.lineno if isinstance(wrong, SyntaxError) else lines[-1] if lines else None
    return f"line {line}: " if line else ""


# Installed packages, which name what they offer by entry points of a group.


def offers_of(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group, by name. None is imported yet.

    offers_of("ropewalk.tasks")    # {"colours": [EntryPoint(name="colours", ...)]}
    """
    offers: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        if point not in (known := offers.setdefault(point.name, [])):  # a folder can stand on the path twice
            known.append(point)
    return offers


def packages_of(group: str) -> dict[str, str]:
    """The names that a group offers, each with its package, or packages."""
    return {name: " and ".join(map(package_of, points)) for name, points in sorted(offers_of(group).items())}


def load_offer(offers: list[EntryPoint], kind: str, field: str) -> Any:
    """What the only package that offers something by this name leads to; `kind` is what it is."""
    point, *others = offers
    if others:
        packages = " and ".join(map(package_of, offers))
        sentence = f"the {kind} {point.name} is offered by several packages: {packages}"
        raise Conflict.because(field, sentence, remedy="uninstall all but one")
    try:
        return point.load()
    except Exception as wrong:
        where = package_of(point)
        sentence = f"the {kind} {point.name} of {where} cannot be imported: {type(wrong).__name__}: {why(wrong)}"
        raise Unreadable.because(field, sentence, remedy="correct or uninstall the package") from wrong


def require_name_of(point: EntryPoint, loaded: Any, kind: str, field: str) -> None:
    """Refuse an entry point that has another name than what it leads to."""
    if loaded.name != point.name:
        sentence = f"the entry point {point.name} of {package_of(point)} leads to a {kind} of the name {loaded.name}"
        raise InvalidValue.because(field, sentence, remedy="give both one name")


def package_of(point: EntryPoint) -> str:
    """The package of an entry point, or where it leads."""
    return point.dist.name if point.dist else point.value
