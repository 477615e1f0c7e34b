"""Sizes that only go down."""

import ast
import collections
import re
import statistics

from architecture.tree import (
    CONTRACTS,
    FILES,
    PACKAGE,
    assert_none,
    code_lines,
    factor_of,
    functions,
    module_of,
    nodes,
    parsed,
)

METHOD_FILE, PACKAGE_FILE, FUNCTION = 120, 400, 60

# With room for a method or two: CONTRIBUTING adds one to a copy.
PACKAGE_LINES, TEST_LINES, IMPORT_SHARE, PACKAGE_FILES = 59_600, 61_010, 0.102, 443


def lines(path):
    return len(path.read_text().splitlines())


def test_files_are_small():
    assert_none(
        f"{module_of(path)} has {lines(path)} lines"
        for path in FILES
        if lines(path) > (METHOD_FILE if factor_of(path) else PACKAGE_FILE)
    )


def test_the_house_does_not_grow():
    """Its lines, its files, and how much of it says only where names come from."""
    imported = sum(
        (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    total = sum(map(lines, FILES))
    assert total <= PACKAGE_LINES
    assert len(FILES) <= PACKAGE_FILES
    assert imported / total <= IMPORT_SHARE
    assert sum(map(lines, (PACKAGE.parent / "tests").rglob("*.py"))) <= TEST_LINES


def test_functions_are_small():
    assert_none(
        f"{module_of(path)}.{function.name} has {code_lines(function)} lines"
        for path in FILES
        for function in functions(path)
        if code_lines(function) > FUNCTION
    )


def test_most_method_files_are_of_fifty_lines():
    methods = [
        path for path in FILES if (factor := factor_of(path)) and path.stem not in ("__init__", CONTRACTS[factor])
    ]
    assert statistics.median(map(lines, methods)) <= 50


def numbers(module):
    """The constants of a module that are numbers, by name."""
    for node in module.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(target.elts, value.elts, strict=False) if several else [(target, value)]
        for name, number in pairs:
            if isinstance(name, ast.Name) and name.id.isupper() and is_number(number):
                yield name.id, eval(ast.unparse(number))


def is_number(node):
    """A number, or an expression of numbers."""
    kinds = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    parts = list(ast.walk(node))
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    return all(isinstance(part, kinds) for part in parts) and all(type(one) in (int, float) for one in constants)


def contributed_files():
    """The files that CONTRIBUTING.md shows a contributor to write; other blocks are lines of one that exists."""
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    for name, block in re.findall(r"```python\n# (ropewalk/\S+)\n(.*?)```", text, flags=re.DOTALL):
        if not (PACKAGE.parent / name).exists():
            yield name, ast.parse(block)


def test_a_number_has_a_name_of_its_own():
    """A reader who knows TABLE_RTOL from one file need not look it up in the next."""
    values = collections.defaultdict(dict)
    modules = [(module_of(path), parsed(path)) for path in FILES] + list(contributed_files())
    for home, module in modules:
        for name, number in numbers(module):
            values[name].setdefault(number, home)
    shared = {name: homes for name, homes in values.items() if len(homes) > 1}
    told = "\n".join(f"{name}: {', '.join(homes.values())}" for name, homes in sorted(shared.items()))
    assert not shared, told
