"""The page of a method is its docstring: idea, formula, source, notes. `describe`, `show` and the docs print it."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FACTORS = ("frequencies", "reach", "biases", "scales", "positions", "decoding", "surgery")  # the folders of methods
HOMES = {"presets": "extension/presets"}  # of what is no factor
NO_PAGE = "(its class has no docstring)"  # in place of what a method is


class Page(NamedTuple):
    """The parts of a docstring."""

    idea: str  # the first paragraph, on one line
    formula: str  # the indented block, dedented
    source: str  # what follows "Source:"
    notes: str  # every other paragraph


def page_of(thing: object) -> Page:
    """The page of a preset (its own docstring) or of a method: its module's, or of one from outside its class's."""
    if inspect.isfunction(thing):
        return _page(inspect.getdoc(thing))
    kind = _class_of(thing)
    of_module = sys.modules[kind.__module__].__doc__
    page = _page(of_module if kind.__module__.startswith("ropewalk.") else _written_docstring(kind) or of_module)
    return page if page.idea else page._replace(idea=NO_PAGE)


def list_folder(folder: str) -> Iterator[tuple[str, Page]]:
    """Everything in a folder's ALL, with its page: read from the files, since importing them takes torch."""
    for name, file in _files(folder).items():
        module = ast.parse(file.read_text("utf-8"))
        yield name, _page(ast.get_docstring(_function(module, name) or module))


@cache
def _files(folder: str) -> dict[str, Path]:
    """The names in a folder's ALL with their files: a preset by its function, a method by its file."""
    place = Path(__file__).parents[1] / HOMES.get(folder, f"methods/{folder}")
    init = ast.parse((place / "__init__.py").read_text("utf-8"))
    imports = [node for node in init.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module).split(".")[3:] for node in imports for alias in node.names}
    listing = next(node.value for node in init.body if isinstance(node, ast.AnnAssign))
    listed = [node.id for node in ast.walk(listing or init) if isinstance(node, ast.Name)]
    return {
        name if folder in HOMES else homes[name][-1]: place.joinpath(*homes[name]).with_suffix(".py") for name in listed
    }


def idea_of(file: Path, name: str) -> str:
    """The first paragraph of a function's docstring, read from its file."""
    function = _function(ast.parse(file.read_text("utf-8")), name)
    return _page(ast.get_docstring(function)).idea if function else ""


def _function(module: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def names() -> list[str]:
    """Every preset by its name, and every method by its slot and name, from the files."""
    return [*_files("presets"), *(f"{slot}.{name}" for slot in FACTORS for name in _files(slot))]


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


def _written_docstring(kind: type) -> str:
    """The docstring of a class, unless dataclass made it of the fields."""
    docstring = vars(kind).get("__doc__") or ""
    return "" if docstring.startswith(f"{kind.__name__}(") else docstring


def _class_of(thing: object) -> type:
    return thing if isinstance(thing, type) else type(thing)
