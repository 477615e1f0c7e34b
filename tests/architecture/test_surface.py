"""Names, docstrings, errors: what a reader meets first."""

import ast
import builtins
import types

import pytest

import ropewalk
from ropewalk import errors

from architecture.tree import FILES, PACKAGE, assert_none, functions, module_of, nodes, parsed

REFUSALS = {name for name, each in vars(errors).items() if isinstance(each, type)}
ERRORS = {each.__name__ for each in (errors.RopewalkError, *errors.RopewalkError.__subclasses__())}
SAID = ("rule", "sentence", "reason")  # variables with what an error says of its field
TESTS = PACKAGE.parent / "tests"
SAY_NOTHING = {"utils", "common", "helpers", "manager", "handler", "misc", "base"}
# What every method has, documented once in its signature.
OF_SIGNATURES = {
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


def test_public_names():
    public = {
        name
        for name, value in vars(ropewalk).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    imported_here = {"Any", "TYPE_CHECKING", "import_module"}
    later = set(ropewalk._LATER)  # there once they were asked for
    assert public - imported_here - later == set(ropewalk.__all__) - later
    assert all(callable(getattr(ropewalk, name)) for name in ropewalk._LATER)
    with pytest.raises(AttributeError, match="no attribute"):
        ropewalk.no_such_name  # noqa: B018
    assert sorted(ropewalk.__all__) == ropewalk.__all__


def test_the_version_is_said_once():
    assert ropewalk.__version__.count(".") == 2
    assert "version" not in [
        line.split("=")[0].strip() for line in (PACKAGE.parent / "pyproject.toml").read_text().splitlines()
    ]


def test_names_say_something():
    assert_none(module_of(path) for path in FILES if SAY_NOTHING & set(module_of(path).split(".")))


def test_modules_are_documented():
    assert_none(module_of(path) for path in FILES if not ast.get_docstring(parsed(path)))


def test_public_functions_are_documented():
    assert_none(
        f"{module_of(path)}.{function.name}"
        for path in FILES
        for function in public_functions(path)
        if not ast.get_docstring(function)
    )


def public_functions(path):
    """Functions of the module and methods of its classes; not what is inside of one, and no properties."""
    for place in nodes(path):
        if isinstance(place, ast.Module | ast.ClassDef):
            for node in place.body:
                if isinstance(node, ast.FunctionDef) and not is_property(node) and is_public(node.name):
                    yield node


def is_property(function):
    return any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list)


def is_public(name):
    return not name.startswith("_") and name not in OF_SIGNATURES


def test_only_named_errors_are_raised_and_nothing_is_warned_or_asserted():
    assert_none(
        f"{module_of(path)}, line {node.lineno}: {fault}"
        for path in FILES
        for node in nodes(path)
        if (fault := fault_of(node))
    )


def fault_of(node):
    match node:
        case ast.Assert():
            return "assert"
        case ast.Attribute(attr="warn"):
            return "a wrong number is refused, not warned about"
        case ast.Raise(exc=ast.Call(func=ast.Name(id=raised))) if is_unnamed(raised):
            return f"raise {raised}"
    return ""


def is_unnamed(raised):
    return hasattr(builtins, raised) and raised not in {*REFUSALS, "AttributeError"}


def test_an_error_names_a_field_and_then_says_what_holds_for_it():
    """Where the two are swapped, the message is no sentence and `field` is one."""
    assert_none(
        f"{module_of(path)}, line {node.lineno}: {ast.unparse(node)}"
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Call) and is_error(node.func) and len(node.args) > 1 and is_swapped(node)
    )


def is_error(called):
    of = called.value if isinstance(called, ast.Attribute) and called.attr == "because" else called
    return isinstance(of, ast.Name) and of.id in ERRORS


def is_swapped(error):
    """The name of a field has no more words than its rule; a name that is looked up is never a text of the code."""
    field, rule = error.args[:2]
    if ast.unparse(field) in SAID:
        return True
    if ast.unparse(error.func) == "UnknownName":
        return text_of(field) is None
    named, ruled = text_of(field), text_of(rule, filled="it")
    if named is None:
        return False
    if ruled is None:
        return isinstance(rule, ast.Name) and rule.id.islower() and rule.id not in SAID
    return len(named.split(",")[-1].split()) > len(ruled.split())


def text_of(argument, filled=""):
    """A literal, with a word for what is filled in; None of what is no text."""
    if isinstance(argument, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else filled for part in argument.values)
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


def test_modules_keep_no_state():
    """No module-level dict or list that is filled later: constants are written in capitals or with dunders."""
    assert_none(f"{module_of(path)}.{name}" for path in FILES for name in state_of(path))


def state_of(path):
    for node in parsed(path).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict | ast.List | ast.Set):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = getattr(target, "id", "")
                if not name.isupper() and not name.startswith("__"):
                    yield name


def test_every_module_has_its_tests():
    modules = [path.stem for path in FILES if path.parent == PACKAGE and not path.stem.startswith("__")]
    assert_none(module for module in modules if not (TESTS / f"test_{module}.py").exists())


def test_a_test_file_tests_something():
    """An emptied file passes as quietly as a good one."""
    files = sorted(TESTS.rglob("test_*.py"))
    assert_none(
        str(path.relative_to(TESTS))
        for path in files
        if not any(function.name.startswith("test_") for function in functions(path))
    )


def test_no_test_file_imports_another():
    """What two of them need stands in a file beside them, under a name of its own."""
    assert_none(
        f"{path.relative_to(TESTS)} imports {node.module}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_")
    )
