"""Names, docstrings, errors: what a reader meets first."""

import ast
import builtins
import types

import pytest

import ropewalk
from ropewalk import errors

from architecture.tree import FILES, PACKAGE, functions, module_of, parsed

REFUSALS = {name for name, each in vars(errors).items() if isinstance(each, type)}
TESTS = PACKAGE.parent / "tests"


def test_public_names():
    public = {
        name
        for name, value in vars(ropewalk).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    imported_here = {"Any", "TYPE_CHECKING", "import_module"}
    assert public - imported_here == set(ropewalk.__all__) - set(ropewalk._LATER)
    assert all(callable(getattr(ropewalk, name)) for name in ropewalk._LATER)
    with pytest.raises(AttributeError, match="no attribute"):
        ropewalk.no_such_name  # noqa: B018
    assert sorted(ropewalk.__all__) == ropewalk.__all__


def test_the_version_is_said_once():
    assert ropewalk.__version__.count(".") == 2
    assert "version" not in [
        line.split("=")[0].strip() for line in (PACKAGE.parent / "pyproject.toml").read_text().splitlines()
    ]


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_names_say_something(path):
    assert not {"utils", "common", "helpers", "manager", "handler", "misc", "base"} & set(module_of(path).split("."))


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_modules_and_public_functions_are_documented(path):
    assert ast.get_docstring(parsed(path))
    methods = {
        "table",
        "spans",
        "bias",
        "scale",
        "number",
        "combine",
        "convert",
        "weights",
        "check",
        "check_against",
        "stages",
        "knobs",
        "example",
        "extension",
    }
    for function in functions(path):
        public = not function.name.startswith("_") and function.name not in methods
        nested = function not in [
            node for each in ast.walk(parsed(path)) if isinstance(each, ast.Module | ast.ClassDef) for node in each.body
        ]
        overridden = any(isinstance(d, ast.Name) and d.id == "property" for d in function.decorator_list)
        assert not public or nested or overridden or ast.get_docstring(function), function.name


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_only_named_errors_are_raised_and_nothing_is_warned_or_asserted(path):
    for node in ast.walk(parsed(path)):
        assert not isinstance(node, ast.Assert), f"line {node.lineno}: assert"
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            raised = node.exc.func.id
            assert raised in {*REFUSALS, "AttributeError"} or not hasattr(builtins, raised), (
                f"line {node.lineno}: raise {raised}"
            )
        if isinstance(node, ast.Attribute):
            assert node.attr != "warn", f"line {node.lineno}: a wrong number is refused, not warned about"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_modules_keep_no_state(path):
    """No module-level dict or list that is filled later: constants are written in capitals or with dunders."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                name = getattr(target, "id", "")
                mutable = isinstance(node.value, ast.Dict | ast.List | ast.Set)
                assert not mutable or name.isupper() or name.startswith("__"), name


@pytest.mark.parametrize("path", [path for path in FILES if path.parent == PACKAGE], ids=module_of)
def test_every_module_has_its_tests(path):
    if path.stem.startswith("__"):
        return
    assert (TESTS / f"test_{path.stem}.py").exists()


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_a_test_file_tests_something(path):
    """An emptied file passes as quietly as a good one."""
    names = [node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)]
    assert any(name.startswith("test_") for name in names)
