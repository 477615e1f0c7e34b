"""Ropewalk: train short, run long. Every method of length extrapolation as one composable extension of a model."""

from ropewalk.attention import attend
from ropewalk.equation import reference_attention
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, RopewalkError, UnknownName, Unreadable
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.parsing import parse

__version__ = "0.1.0"

__all__ = [
    "Conflict",
    "DoesNotFit",
    "Extension",
    "Facts",
    "InvalidValue",
    "RopewalkError",
    "UnknownName",
    "Unreadable",
    "attend",
    "parse",
    "reference_attention",
]
