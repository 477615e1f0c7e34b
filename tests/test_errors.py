"""The tree, and the form of its messages."""

import ast
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ropewalk import errors, models
from ropewalk.errors import is_out_of_memory

from architecture.tree import FILES, assert_none, nodes

PROJECT = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()


LEAVES = {
    name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, errors.RopewalkError)
}


def test_the_docstring_draws_the_tree():
    assert all(name in errors.__doc__ for name in LEAVES)
    assert all(getattr(errors, name).__mro__[1] in (errors.RopewalkError, ValueError) for name in LEAVES)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a must be 1, got 2"),
        ({"known": ["x", "y"]}, "a must be 1, got 2; known: x, y"),
        ({"known": ["x"], "remedy": "write x"}, "a must be 1, got 2; known: x; write x"),
    ],
)
def test_messages(given, message):
    assert str(errors.InvalidValue("a", "1", 2, **given)) == message


@pytest.mark.parametrize("kind", [errors.InvalidValue, errors.NotInstalled])
def test_another_process_gets_the_same_error(kind):
    error = kind("a", "1", lambda: None, known=["x"], remedy="write x")  # what was got need not travel
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.field) == (str(error), "a")


@pytest.mark.parametrize(
    ("package", "remedy"),
    [
        ("ray", "in a checkout of Ropewalk, pip install '.[cluster]' -c constraints.txt"),
        ("lm_eval.api", "in a checkout of Ropewalk, pip install '.[eval]' -c constraints.txt"),
        ("tiktoken", "pip install tiktoken"),
    ],
)
def test_what_is_missing_is_named_with_what_brings_it(package, remedy):
    refusal = errors.not_installed(ModuleNotFoundError(f"No module named {package!r}", name=package))
    assert isinstance(refusal, ImportError)
    assert str(refusal) == f"{package.split('.')[0]} is not installed; {remedy}"


FROM_INDEX = {"ropewalk-1.dist-info/RECORD": ["ropewalk/errors.py", "ropewalk-1.dist-info/INSTALLER"]}
FROM_A_FOLDER = {
    "ropewalk-1.dist-info/RECORD": ["ropewalk-1.dist-info/INSTALLER", "ropewalk-1.dist-info/direct_url.json"]
}
BUILT = {"ropewalk.egg-info/SOURCES.txt": ["ropewalk/errors.py"]}  # what setuptools leaves in a checkout


@pytest.mark.parametrize(
    ("files", "remedy"),
    [
        (FROM_INDEX, "pip install 'ropewalk[cluster]'"),
        (FROM_A_FOLDER, "in a checkout of Ropewalk, pip install '.[cluster]' -c constraints.txt"),
        (BUILT | FROM_A_FOLDER, "in a checkout of Ropewalk, pip install '.[cluster]' -c constraints.txt"),
        (BUILT, "in a checkout of Ropewalk, pip install '.[cluster]' -c constraints.txt"),
        ({}, "in a checkout of Ropewalk, pip install '.[cluster]' -c constraints.txt"),
    ],
)
def test_the_extra_is_named_as_ropewalk_was_installed(files, remedy, monkeypatch, tmp_path):
    """pip writes direct_url.json for all that is not from an index: PEP 610."""
    for name, listed in files.items():
        place = tmp_path / name.partition(".")[2].partition("/")[0] / name
        place.parent.mkdir(parents=True, exist_ok=True)
        (place.parent / "METADATA").write_text("Name: ropewalk\nVersion: 1\n")
        place.write_text("".join(f"{path}{',,' * (place.name == 'RECORD')}\n" for path in listed))
        for path in listed:
            (place.parents[1] / path).parent.mkdir(exist_ok=True)
            (place.parents[1] / path).touch()
    monkeypatch.setattr(sys, "path", sorted(map(str, tmp_path.iterdir()), reverse=True))  # the checkout first
    missing = ModuleNotFoundError("No module named 'ray'", name="ray")
    assert str(errors.not_installed(missing)) == f"ray is not installed; {remedy}"


def test_a_model_that_is_not_installed_is_named_with_what_brings_it(monkeypatch, tmp_path):
    monkeypatch.setattr(models, "DEFAULT", tmp_path)
    assert models.path_of("./mine") == "./mine"
    with pytest.raises(
        errors.NotInstalled, match="the model default is not installed; pip install ropewalk-demo-model"
    ):
        models.path_of("default")


def test_extras_are_those_of_the_project():
    extras = dict(
        re.findall(r"^([\w-]+) = (\[.*\])$", PROJECT.split("[project.optional-dependencies]")[1], re.MULTILINE)
    )
    assert all(f'"{package.replace("_", "-")}' in extras[extra] for package, extra in errors.EXTRAS.items())


def test_a_missing_package_is_met_when_it_is_asked_for():
    """transformers is taken away; importing ropewalk does not ask for it, `extend` does."""
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import ropewalk as rw\n"
        "try: rw.extend\n"
        "except rw.NotInstalled as refusal: print(refusal)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "transformers is not installed; pip install transformers\n"


def test_attention_needs_no_transformers():
    """As in an engine's plugin, whose transformers may be another."""
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import torch, ropewalk as rw\n"
        "x = torch.randn(1, 2, 40, 16, generator=torch.Generator().manual_seed(1))\n"
        "extension, facts = rw.parse('yarn:factor=4+log_n'), rw.Facts(trained_len=32, head_dim=16, heads=2)\n"
        "out = rw.attend(x, x, x, extension, facts)\n"
        "print(torch.allclose(out.double(), rw.reference_attention(x, x, x, extension, facts), atol=1e-5))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: 8 bytes"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    ],
)
def test_want_of_memory_has_many_words(error):
    assert is_out_of_memory(error)


def test_other_errors_are_not_want_of_memory():
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(OSError("out of memory"))


def test_the_processors_own_words():
    with pytest.raises(RuntimeError) as told:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(told.value)


def test_a_rule_that_ends_in_a_comma_makes_no_double_one():
    assert str(errors.InvalidValue("n", "at least 1, the least,", 0)) == "n must be at least 1, the least, got 0"


def words(node):
    """How many words an argument has, if it is written out or named as a rule; 0 if it is a value."""
    source = ast.unparse(node)
    written = isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)
    named = source.isupper() or re.search(r"['\"]|rule|reason|sentence|words|kind|TOKENS", source)
    return len(source.split()) if written else 4 * bool(named)


def test_every_error_has_its_field_first_and_then_its_rule():
    kinds = LEAVES - {"UnknownName"}
    raised = [
        (path, node)
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).removesuffix(".because") in kinds
    ]
    assert len(raised) > 600
    assert_none(
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path, node in raised
        for field, rule, *_ in [node.args]
        if not 0 < words(rule) >= words(field) - 2
    )
