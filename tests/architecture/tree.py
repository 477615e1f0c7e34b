"""The package as source text: files, imports, functions."""

import ast
import gc
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import ropewalk

PACKAGE = Path(ropewalk.__file__).parent
# Each factor's folder, and the file in it that says what every method of the factor has.
CONTRACTS = {
    "frequencies": "frequencies",
    "reach": "reach",
    "biases": "bias",
    "scales": "scale",
    "positions": "positions",
    "decoding": "decoding",
    "surgery": "surgery",
}
FACTORS = tuple(CONTRACTS)
FILES = sorted(PACKAGE.rglob("*.py"))


def assert_none(offenders: Iterable[str]) -> None:
    """Fails with all offenders, one a line: a rule is one test, over however many files."""
    listed = list(offenders)
    assert not listed, "\n".join(listed)


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(("ropewalk", *(part for part in parts if part != "__init__")))


def factor_of(path: Path) -> str:
    """The factor whose folder a file lies in, however deep; empty where it lies in none."""
    room, *inner = path.relative_to(PACKAGE).parts
    return inner[0] if room == "methods" and inner[0] in FACTORS else ""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Walked once for all rules."""
    return list(ast.walk(parsed(path)))


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it, names that are modules resolved."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {_resolved(node.module or "", alias.name) for alias in node.names}
    return found


def _resolved(module: str, name: str) -> str:
    path = PACKAGE.parent.joinpath(*module.split("."), name)
    return f"{module}.{name}" if path.with_suffix(".py").exists() or path.is_dir() else module


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in nodes(path) if isinstance(node, ast.FunctionDef)]


def code_lines(function: ast.FunctionDef) -> int:
    """Lines of a function, its docstring apart."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


class Walk:
    """The files of the package in which a Python function runs while it is open, in the threads that have it.

    A thread has it from `sys.setprofile`, or from `threading.setprofile` where it is started later.
    """

    def __init__(self) -> None:
        self.open, self.files = False, set[str]()

    def __call__(self, frame, event, argument) -> None:
        name = frame.f_code.co_filename
        if self.open and event == "call" and frame.f_code.co_name != "<module>" and name.startswith(f"{PACKAGE}/"):
            self.files.add(name.removeprefix(f"{PACKAGE}/"))


def visited(call: Callable[[], object]) -> set[str]:
    """The files of the package in which a Python function runs during a call."""
    walk = Walk()
    walk.open = True
    watch(walk, call)
    return walk.files


def watch(hook: Callable[..., object], call: Callable[[], Any]) -> Any:
    """What a call returns, with a hook of `sys.setprofile` while it runs."""
    gc.collect()
    gc.disable()  # what an earlier test left is not collected within the call
    sys.setprofile(hook)
    try:
        return call()
    finally:
        sys.setprofile(None)
        gc.enable()
