"""The mistakes that a sample is drawn from: each is one edit, and the rest of the file stays as it is."""

import ast

import pytest

from mutants.operators import enclosing, mutants

SOURCE = '''"""Größe: not this 1."""

def scaled(x: "int < 2", factor=2):
    """Nor this."""
    check(x)
    if x < factor and not stopped:
        yield f"{x + 1}"
    return [max(x, 1) * y for y in zip(x, factor) if y]
'''
EXPECTED = {
    (3, "+1", "factor=2", "factor=(3)"),
    (3, "-1", "factor=2", "factor=(1)"),
    (5, "call dropped", "check(x)", "pass"),
    (6, "condition negated", "x < factor and not stopped", "(not (x < factor and (not stopped)))"),
    (6, "comparison", "x < factor", "(x <= factor)"),
    (6, "and/or", "x < factor and not stopped", "(x < factor or not stopped)"),
    (7, "call dropped", 'yield f"{x + 1}"', "pass"),
    (8, "None returned", "return [max(x, 1) * y for y in zip(x, factor) if y]", "return None"),
    (8, "arithmetic", "max(x, 1) * y", "(max(x, 1) / y)"),
    (8, "+1", "max(x, 1)", "max(x, (2))"),
    (8, "-1", "max(x, 1)", "max(x, (0))"),
    (8, "arguments swapped", "zip(x, factor)", "(zip(factor, x))"),
    (8, "condition negated", "if y]", "if (not (y))]"),
}


def edited(mutant):
    source = SOURCE.encode()
    return (source[: mutant.start] + mutant.new.encode() + source[mutant.stop :]).decode()


def test_all_of_a_text_are_found_and_nothing_else():
    """Neither in annotations, nor in words; arguments whose order makes no difference are not swapped."""
    got = {(mutant.line, mutant.operator, edited(mutant)) for mutant in mutants(SOURCE.encode())}
    assert got == {(line, operator, SOURCE.replace(old, new, 1)) for line, operator, old, new in EXPECTED}


@pytest.mark.parametrize("mutant", mutants(SOURCE.encode()), ids=lambda mutant: f"{mutant.line}-{mutant.operator}")
def test_each_is_python(mutant):
    assert ast.dump(ast.parse(edited(mutant))) != ast.dump(ast.parse(SOURCE))


@pytest.mark.parametrize("same", ["return None", "return (None)", "x = y(x, x)", "x[y] = max(x, y)"])
def test_what_would_change_nothing_is_none(same):
    assert mutants(f"def one(x, y):\n    {same}\n".encode()) == []


NESTED = b"""\
LIMIT = 3

class Pair:
    angle = 2

    @property
    def turned(self):
        def inner(x):
            return x
        return inner(self.angle)

if LIMIT:
    async def twice(x=1):
        return [2 * each for each in x]
"""


@pytest.mark.parametrize(
    ("line", "function"),
    [(1, ""), (4, ""), (9, "Pair.turned.<locals>.inner"), (10, "Pair.turned"), (14, "twice")],
)
def test_a_function_is_named_as_python_names_it(line, function):
    assert enclosing(NESTED, line) == function
    namespace = {}
    exec(compile(NESTED, "one.py", "exec"), namespace)
    python = {namespace["twice"].__qualname__, namespace["Pair"].turned.fget.__qualname__}
    assert function.removesuffix(".<locals>.inner") in {"", *python}
