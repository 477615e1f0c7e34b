"""A method's page is its own docstring: idea, formula, source, notes. `describe`, `show` and the docs print it."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import NamedTuple


class Page(NamedTuple):
    """The parts of a docstring."""

    idea: str  # the first paragraph, on one line
    formula: str  # the indented block, dedented
    source: str  # what follows "Source:"
    notes: str  # every other paragraph


def page_of(thing: object) -> Page:
    """The page of a method (its module's docstring) or of a preset (its own)."""
    text = inspect.getdoc(thing) if inspect.isfunction(thing) else sys.modules[_class_of(thing).__module__].__doc__
    blocks = inspect.cleandoc(text or "").split("\n\n")
    formulas = [block for block in blocks[1:] if block.startswith("    ")]
    prose = [" ".join(block.split()) for block in blocks[1:] if not block.startswith("    ")]
    sources = [block.removeprefix("Source: ") for block in prose if block.startswith("Source: ")]
    notes = [block for block in prose if not block.startswith("Source: ")]
    return Page(
        idea=" ".join(blocks[0].split()),
        formula=textwrap.dedent("\n\n".join(formulas)),
        source=" ".join(sources),
        notes="\n\n".join(notes),
    )


def _class_of(thing: object) -> type:
    return thing if isinstance(thing, type) else type(thing)
