"""Every small mistake that a line of Python can have: a comparison, a sign, an order, a step left out."""

import ast
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
JOINED = {ast.And: ast.Or, ast.Or: ast.And}
SYMMETRIC = ("min", "max", "minimum", "maximum", "transpose", "swapaxes", "gcd", "lcm", "equal", "isclose")
UNREAD = ("annotation", "returns", "type_params")  # of a node: nothing is computed there


class Mutant(NamedTuple):
    """One edit of a source text: bytes from `start` to `stop` become `new`."""

    line: int
    operator: str
    start: int
    stop: int
    new: str


def mutants(source: bytes) -> list[Mutant]:
    """All of a source text, in its order, but those that change nothing."""
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found = []
    for node in _computed(ast.parse(source)):
        for part, operator, new in _mistakes(node):
            start, stop = begins[part.lineno - 1] + part.col_offset, begins[part.end_lineno - 1] + part.end_col_offset
            if _parsed(new) != _parsed(ast.unparse(part)):
                found.append(Mutant(part.lineno, operator, start, stop, new))
    return found


def _parsed(text: str) -> str:
    """What Python reads in a part: the same for two that differ in brackets alone."""
    return ast.dump(ast.parse(text))


def _computed(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run: neither annotations nor the parts of f-strings, whose places Python 3.11 does not know."""
    yield node
    for name, value in ast.iter_fields(node) if not isinstance(node, ast.JoinedStr) else ():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in UNREAD:
                yield from _computed(child)


def _mistakes(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    """What can be wrong at a node: the part that is replaced, the operator's name, the new text."""
    match node:
        case ast.Compare(ops=operators):
            for at, operator in enumerate(operators):
                other = COMPARED[type(operator)]()
                yield _changed(node, "comparison", lambda new, at=at, other=other: _put(new.ops, at, other))
        case ast.BoolOp(op=operator):
            yield _changed(node, "and/or", lambda new: setattr(new, "op", JOINED[type(operator)]()))
        case ast.BinOp(op=operator) if type(operator) in COMPUTED and not _is_text(node):
            yield _changed(node, "arithmetic", lambda new: setattr(new, "op", COMPUTED[type(operator)]()))
        case ast.Constant(value=value) if type(value) in (int, float):
            yield node, "+1", f"({value + 1!r})"
            yield node, "-1", f"({value - 1!r})"
        case ast.Call(args=arguments) if _name(node.func) not in SYMMETRIC:
            for at, pair in enumerate(itertools.pairwise(arguments)):
                if not any(isinstance(argument, ast.Starred) for argument in pair):
                    yield _changed(node, "arguments swapped", lambda new, at=at: _swap(new.args, at))
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield node, "call dropped", "pass"
        case ast.Return(value=ast.expr()):
            yield node, "None returned", "return None"
    for condition in [getattr(node, "test", None), *getattr(node, "ifs", ())]:
        if condition is not None:
            yield condition, "condition negated", f"(not ({ast.unparse(condition)}))"


def _name(function: ast.expr) -> str:
    return ast.unparse(function).rpartition(".")[2]


def _is_text(node: ast.BinOp) -> bool:
    """Whether strings are joined or filled: other arithmetic of theirs is refused by Python."""
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _changed(node: ast.AST, operator: str, change: Callable[[Any], None]) -> tuple[ast.AST, str, str]:
    new = copy.deepcopy(node)
    change(new)
    return node, operator, f"({ast.unparse(new)})"


def _put(values: list, at: int, value: ast.AST) -> None:
    values[at] = value


def _swap(values: list, at: int) -> None:
    values[at], values[at + 1] = values[at + 1], values[at]


def enclosing(source: bytes, line: int) -> str:
    """The function around a line, by its name and those of what it stands in; empty outside of all."""
    return _inside(ast.parse(source), line, "")


def _inside(node: ast.AST, line: int, prefix: str) -> str:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            if child.body[0].lineno <= line <= (child.end_lineno or 0):
                return _inside(child, line, f"{name}.<locals>.") or name
        elif found := _inside(child, line, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix):
            return found
    return ""
