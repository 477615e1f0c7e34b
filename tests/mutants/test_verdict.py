"""What counts as a mutant's death: each end that pytest can come to, from pytest itself."""

import subprocess
import sys

import pytest

from mutants.verdict import killer

PASSES = "def test_it():\n    pass\n"
FAILS = "import pytest\n\n@pytest.mark.parametrize('x', ['a - b'])\ndef test_it(x):\n    assert x == 'it'\n"
ENDS = "import os, signal\n\ndef test_it():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
SAYS = "def test_it():\n    print('ERROR    a log')\n    assert False\n"
SETUP = "import pytest\n\n@pytest.fixture\ndef none():\n    1 / 0\n\ndef test_it(none):\n    pass\n"
INNER = "def pytest_runtest_protocol():\n    1 / 0\n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("test", "conftest", "asked", "expected"),
    [
        (PASSES, "", "::test_it", ""),
        (FAILS, "", "", "tests/test_one.py::test_it[a - b]"),
        (SAYS, "", "::test_it", "tests/test_one.py::test_it"),
        (SETUP, "", "", "tests/test_one.py::test_it"),
        ("1 / 0\n", "", "", "tests/test_one.py"),
        ("1 / 0\n", "", "::test_it", "tests/test_one.py"),
        (PASSES, "1 / 0\n", "::test_it", "tests/conftest.py"),
        (PASSES, "", "::test_gone", ""),
        (ENDS, "", "", "the one that began"),
        (PASSES, INNER, "", "the one that began"),
    ],
)
def test_what_killed_is_named(tmp_path, test, conftest, asked, expected):
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_one.py").write_text(test)
    (folder / "conftest.py").write_text(conftest)
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-x", "-p", "no:cacheprovider", "-p", "no:anyio"]
    done = subprocess.run([*command, f"tests/test_one.py{asked}"], cwd=tmp_path, capture_output=True, text=True)
    assert killer(done.returncode, done.stdout + done.stderr, "the one that began") == expected
