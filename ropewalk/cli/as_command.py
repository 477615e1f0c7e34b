"""A verb as the parser calls it: its errors name options as they are typed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any

from ropewalk.errors import RopewalkError, Unreadable
from ropewalk.extension.notation import length

ALIASES = {"target_len": "to", "folder": "out", "directory": "out"}  # fields of the library, and their options


def as_command(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with such errors."""
    options = options_of(verb)

    @wraps(verb)
    def running(**kwargs: Any) -> None:
        try:
            verb(**kwargs)
        except RopewalkError as refused:
            refused.args = (as_typed(refused, options, kwargs),)
            raise

    return running


def options_of(verb: Callable[..., None]) -> dict[str, str]:
    """The options of a verb as they are typed, by the names of its parameters."""
    options = {}
    for name, parameter in inspect.signature(verb, eval_str=True).parameters.items():
        for note in getattr(parameter.annotation, "__metadata__", ()):
            if type(note).__name__ == "OptionInfo":
                declared = (note.default, *(note.param_decls or ()))  # beside Annotated the first name is the default
                named = [text for text in declared if isinstance(text, str) and text.startswith("--")]
                options[name] = named[0].partition("/")[0] if named else f"--{name.replace('_', '-')}"
    return options


def as_typed(refused: RopewalkError, options: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """The message; a field that is an option is named like it, if the wrong value is the option's and no other's."""
    message, field = str(refused), refused.field
    name = field if field in options else ALIASES.get(field, "")
    about_it = any(f"got {written}" in message for written in _written(values.get(name)))
    about_what, colon, sentence = _parted(message, field)
    if name in options and sentence.startswith(f"{field} ") and about_it:
        return f"{about_what}{colon}{options[name]}{sentence.removeprefix(field)}"
    return message


def _parted(message: str, field: str) -> tuple[str, str, str]:
    """The task or the file that a message begins with, if any, and its sentence."""
    before, colon, after = message.partition(f": {field} must ")
    return (before, ": ", f"{field} must {after}") if colon else ("", "", message)


def _written(value: Any) -> Iterator[str]:
    """How a message may write the value of an option."""
    yield from (repr(value), repr(str(value)))
    for part in str(value).split(","):
        with suppress(Unreadable):
            yield str(length(part))
