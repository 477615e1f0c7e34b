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
    from ropewalk.hf.attach.extend import extend, extended
    from ropewalk.hf.load_options import LoadOptions
    from ropewalk.hf.runtime.caches import writing
    from ropewalk.hf.use.contexts import nbce_generate, nbce_stream
    from ropewalk.hf.use.contrast import contrast_stream
    from ropewalk.hf.use.convert import convert
    from ropewalk.hf.use.inspect import inspect
    from ropewalk.hf.use.long_text import score, stream
    from ropewalk.hf.use.parallel import ape_stream
    from ropewalk.hf.use.push import push_to_hub
    from ropewalk.hf.use.save import load, save
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
_LATER = {
    "Conditions": "search.conditions",
    "Extension": "extension.extension",
    "Facts": "methods.facts",
    "LoadOptions": "hf.load_options",
    "RunOptions": "measure.arguments",
    "SearchOptions": "search.fit",
    "Tokens": "extension.inputs",
    "ape_stream": "hf.use.parallel",
    "attend": "attention",
    "check": "engines.check.check",
    "cite": "extension.citations",
    "compare": "measure.compare",
    "contrast_stream": "hf.use.contrast",
    "convert": "hf.use.convert",
    "diagnose": "measure.diagnose",
    "export": "engines.export",
    "extend": "hf.attach.extend",
    "extended": "hf.attach.extend",
    "fit": "search.fit",
    "inspect": "hf.use.inspect",
    "leaderboard": "measure.leaderboard",
    "load": "hf.use.save",
    "nbce_generate": "hf.use.contexts",
    "nbce_stream": "hf.use.contexts",
    "parse": "extension.parsing",
    "push_to_hub": "hf.use.push",
    "reference_attention": "equation",
    "save": "hf.use.save",
    "score": "hf.use.long_text",
    "stream": "hf.use.long_text",
    "writing": "hf.runtime.caches",
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
