"""Sizes that only go down."""

import statistics

from architecture.tree import FILES, assert_none, code_lines, factor_of, functions, module_of

METHOD_FILE, PACKAGE_FILE, FUNCTION, MEDIAN_FUNCTION = 120, 400, 60, 12


def lines(path):
    return len(path.read_text().splitlines())


def test_files_are_small():
    assert_none(
        f"{module_of(path)} has {lines(path)} lines"
        for path in FILES
        if lines(path) > (METHOD_FILE if factor_of(path) else PACKAGE_FILE)
    )


def test_functions_are_small():
    assert_none(
        f"{module_of(path)}.{function.name} has {code_lines(function)} lines"
        for path in FILES
        for function in functions(path)
        if code_lines(function) > FUNCTION
    )


def test_most_functions_are_of_a_dozen_lines():
    assert statistics.median(code_lines(function) for path in FILES for function in functions(path)) <= MEDIAN_FUNCTION


def test_most_method_files_are_of_fifty_lines():
    methods = [path for path in FILES if factor_of(path) and path.name not in ("__init__.py", "signature.py")]
    assert statistics.median(map(lines, methods)) <= 50
