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
    not_installed as _not_installed,
)

if TYPE_CHECKING:
    from ropewalk.attention import attend
    from ropewalk.engines.check.check import check
    from ropewalk.engines.export import export
    from ropewalk.equation import reference_attention
    from ropewalk.extension.citations import cite
    from ropewalk.extension.extension import Extension
    from ropewalk.extension.inputs import Tokens
    from ropewalk.extension.parsing import parse
    from ropewalk.hf import (
        ape_stream,
        contrast_stream,
        convert,
        extend,
        extended,
        inspect,
        load,
        nbce_generate,
        nbce_stream,
        push_to_hub,
        save,
        score,
        stream,
        writing,
    )
    from ropewalk.hf.load_options import LoadOptions
    from ropewalk.measure.arguments import RunOptions
    from ropewalk.measure.compare import compare
    from ropewalk.measure.diagnose import diagnose
    from ropewalk.measure.leaderboard import leaderboard
    from ropewalk.methods.facts import Facts
    from ropewalk.search.conditions import Conditions
    from ropewalk.search.fit import SearchOptions, fit

__version__ = "0.1.0"

__all__ = [
    "Conditions",
    "Conflict",
    "DoesNotFit",
    "Extension",
    "Facts",
    "InvalidValue",
    "LoadOptions",
    "NotInstalled",
    "RopewalkError",
    "RunOptions",
    "SearchOptions",
    "Tokens",
    "UnknownName",
    "Unreadable",
    "ape_stream",
    "attend",
    "check",
    "cite",
    "compare",
    "contrast_stream",
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
    "push_to_hub",
    "reference_attention",
    "save",
    "score",
    "stream",
    "writing",
]

# Importing torch takes a second, transformers another: each name is imported when it is first asked for.
_OF_MODELS = (
    "ape_stream",
    "contrast_stream",
    "convert",
    "extend",
    "extended",
    "inspect",
    "load",
    "nbce_generate",
    "nbce_stream",
    "push_to_hub",
    "save",
    "score",
    "stream",
    "writing",
)
_LATER = {
    "Conditions": "search.conditions",
    "Extension": "extension.extension",
    "Facts": "methods.facts",
    "LoadOptions": "hf.load_options",
    "RunOptions": "measure.arguments",
    "SearchOptions": "search.fit",
    "Tokens": "extension.inputs",
    "attend": "attention",
    "check": "engines.check.check",
    "cite": "extension.citations",
    "compare": "measure.compare",
    "diagnose": "measure.diagnose",
    "export": "engines.export",
    "fit": "search.fit",
    "leaderboard": "measure.leaderboard",
    "parse": "extension.parsing",
    "reference_attention": "equation",
    **dict.fromkeys(_OF_MODELS, "hf"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
    try:
        globals()[name] = getattr(import_module(f"ropewalk.{_LATER[name]}"), name)
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from missing
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
