"""Extensions as a caller has them: lines of notation, or objects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE
from ropewalk.extension.parsing import Line, notation_of, read_line
from ropewalk.measure.comparison.comparison import LINES
from ropewalk.measure.report.drawing.names import BASE
from ropewalk.measure.report.tables import brief

Extensions = str | Extension | Sequence[str | Extension] | Mapping[str, str | Extension]


def line_of(extension: str | Extension) -> Line:
    """A line, read; an object is named by its methods."""
    return Line(_name(extension), (), extension) if isinstance(extension, Extension) else read_line(extension)


def _name(extension: Extension) -> str:
    """Its methods; where these are not all of it, with a short hash, so that other objects have other names."""
    if extension == Extension():
        return BARE
    words = brief(extension)
    if words == notation_of(extension):
        return words
    digest = hashlib.sha256(json.dumps(extension.to_json(), sort_keys=True).encode())
    return f"{words} #{digest.hexdigest()[:6]}".strip()


def lines_of(extensions: Extensions) -> list[Line]:
    """All of them, without the base model, which is always measured; none: the lines that `compare` has by default."""
    if isinstance(extensions, str | Extension):
        extensions = [extensions]
    if isinstance(extensions, Mapping):
        return [_named(name, line_of(extension)) for name, extension in extensions.items()]
    if not isinstance(extensions, Sequence):
        raise InvalidValue("extensions", "a list of extensions, or a mapping from names to them", extensions)
    return [line_of(extension) for extension in extensions or LINES if extension not in (BARE, Extension())]


def _named(name: object, line: Line) -> Line:
    """A line under a name of the caller's."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidValue("extensions", "a mapping from names, which are text", name)
    if line.stored == Extension():
        rule = "a mapping to extensions that change the model, since the base model is always measured"
        raise InvalidValue("extensions", rule, {name: line.stored}, remedy=f"leave {name!r} out")
    if name in (BARE, BASE):
        rule = f"a mapping without the names {BARE!r} and {BASE!r}: that is the model itself, which is always measured"
        raise InvalidValue("extensions", rule, name, remedy="choose another name")
    return line._replace(text=name)
