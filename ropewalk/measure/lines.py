"""Extensions as a caller has them: lines of notation, or objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.compare.compare import LINES
from ropewalk.extension import Extension
from ropewalk.notation import BARE
from ropewalk.parsing import Line, read_line
from ropewalk.report.tables import brief

Extensions = str | Extension | Sequence[str | Extension] | Mapping[str, str | Extension]


def line_of(extension: str | Extension) -> Line:
    """A line, read; an object is named by its methods."""
    return Line(brief(extension), (), extension) if isinstance(extension, Extension) else read_line(extension)


def lines_of(extensions: Extensions) -> list[Line]:
    """All of them, without the base model, which is always measured; none: the lines that `compare` has by default."""
    if isinstance(extensions, str | Extension):
        extensions = [extensions]
    if isinstance(extensions, Mapping):
        return [line_of(extension)._replace(text=name) for name, extension in extensions.items()]
    if not isinstance(extensions, Sequence):
        raise InvalidValue("extensions", "a list of extensions, or a mapping from names to them", extensions)
    return [line_of(extension) for extension in extensions or LINES if extension != BARE]
