"""Ropewalk: train short, run long. Every method of length extrapolation as one composable extension of a model."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.errors import (
    Conflict,
    DoesNotFit,
    InvalidValue,
    NotInstalled,
    RopewalkError,
    UnknownName,
    Unreadable,
)
from ropewalk.errors import not_installed as _not_installed

if TYPE_CHECKING:
    from ropewalk.attention import attend  # type: ignore[no-redef]
    from ropewalk.equation import reference_attention
    from ropewalk.extension import Extension
    from ropewalk.facts import Facts
    from ropewalk.hf import (
        check,
        convert,
        export,
        extend,
        extended,
        inspect,
        load,
        nbce_generate,
        nbce_stream,
        save,
        score,
        stream,
    )
    from ropewalk.measure.comparing import compare
    from ropewalk.measure.diagnosing import diagnose
    from ropewalk.measure.fitting import fit
    from ropewalk.measure.leaderboard import leaderboard
    from ropewalk.parsing import parse

__version__ = "0.1.0"

__all__ = [
    "Conflict",
    "DoesNotFit",
    "Extension",
    "Facts",
    "InvalidValue",
    "NotInstalled",
    "RopewalkError",
    "UnknownName",
    "Unreadable",
    "attend",
    "check",
    "compare",
    "convert",
    "diagnose",
    "export",
    "extend",
    "extended",
    "fit",
    "inspect",
    "leaderboard",
    "load",
    "nbce_generate",
    "nbce_stream",
    "parse",
    "reference_attention",
    "save",
    "score",
    "stream",
]

# Importing torch takes a second, transformers another: each name is imported when it is first asked for.
_OF_MODELS = ("check", "convert", "export", "extend", "extended", "inspect", "load", "save", "score", "stream")
_LATER = {
    "Extension": "extension",
    "Facts": "facts",
    "attend": "attention",
    "compare": "measure.comparing",
    "diagnose": "measure.diagnosing",
    "fit": "measure.fitting",
    "leaderboard": "measure.leaderboard",
    "parse": "parsing",
    "reference_attention": "equation",
    **dict.fromkeys([*_OF_MODELS, "nbce_generate", "nbce_stream"], "hf"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    try:
        return getattr(import_module(f"ropewalk.{_LATER[name]}"), name)
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from missing


def __dir__() -> list[str]:
    return __all__
