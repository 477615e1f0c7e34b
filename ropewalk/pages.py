"""A method's page is its own docstring: idea, formula, source, notes. `describe`, `show` and the docs print it."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FACTORS = ("frequencies", "reach", "biases", "scales", "positions", "decoding", "surgery")  # the folders of methods


class Page(NamedTuple):
    """The parts of a docstring."""

    idea: str  # the first paragraph, on one line
    formula: str  # the indented block, dedented
    source: str  # what follows "Source:"
    notes: str  # every other paragraph


def page_of(thing: object) -> Page:
    """The page of a method (its module's docstring) or of a preset (its own)."""
    own = inspect.getdoc(thing) if inspect.isfunction(thing) else sys.modules[_class_of(thing).__module__].__doc__
    return _page(own)


def listed(folder: str) -> Iterator[tuple[str, Page]]:
    """Everything that a folder lists as ALL, with its page: read from the files, since importing them takes torch."""
    place = Path(__file__).parent / folder
    init = ast.parse((place / "__init__.py").read_text("utf-8"))
    imports = [each for each in init.body if isinstance(each, ast.ImportFrom)]
    homes = {alias.name: str(each.module).split(".")[2:] for each in imports for alias in each.names}
    listing = next(each.value for each in init.body if isinstance(each, ast.AnnAssign))
    for name in [each.id for each in ast.walk(listing or init) if isinstance(each, ast.Name)]:
        module = ast.parse(place.joinpath(*homes[name]).with_suffix(".py").read_text("utf-8"))
        preset = next((each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == name), None)
        yield (name if preset else homes[name][-1]), _page(ast.get_docstring(preset or module))


def _page(docstring: str | None) -> Page:
    blocks = inspect.cleandoc(docstring or "").split("\n\n")
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
