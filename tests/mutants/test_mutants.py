"""A broken formula must turn a test red: each mutant is a copy of the package with one edit, in its own process."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mutants.mutations import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
WHERE = "import ropewalk, pathlib; print(pathlib.Path(ropewalk.__file__).parent.resolve())"


@pytest.fixture
def copy(tmp_path):
    """The package and its tests, away from the checkout, so that the copy is what gets imported."""
    for folder in ("ropewalk", "tests"):
        shutil.copytree(
            ROOT / folder,
            tmp_path / folder,
            ignore=shutil.ignore_patterns("__pycache__", "mutants", "model.safetensors"),
        )
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def python(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def run_tests(folder, tests):
    paths = [f"tests/{name}" for name in tests.split()]
    return python(folder, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *paths)


def edit(path, old, new):
    text = path.read_text()
    assert old in text, f"{path.name} no longer has: {old}"
    path.write_text(text.replace(old, new, 1))


def test_an_unchanged_copy_passes(copy):
    """The control: what fails below fails for its edit."""
    assert python(copy, "-c", WHERE).stdout.strip() == str((copy / "ropewalk").resolve())
    every = sorted({name for mutation in MUTATIONS for name in mutation.tests.split()} | {"architecture"})
    done = run_tests(copy, " ".join(every))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutant_is_caught(copy, mutation):
    edit(copy / "ropewalk" / mutation.file, mutation.old, mutation.new)
    done = run_tests(copy, mutation.tests)
    assert done.returncode == 1, done.stdout  # pytest's answer for failed tests; 2 would be a broken edit


def test_a_method_outside_the_list_is_caught(copy):
    frequencies = copy / "ropewalk" / "frequencies"
    frequencies.joinpath("ntk_mine.py").write_text(frequencies.joinpath("ntk_old.py").read_text())
    assert run_tests(copy, "architecture").returncode == 1


def test_a_method_without_an_example_is_caught(copy):
    edit(copy / "tests" / "examples.py", "    frequencies.NTKOld(factor=4),\n", "")
    assert run_tests(copy, "invariants").returncode == 1


def contributed_blocks():
    """The code blocks of CONTRIBUTING.md, by the file that their first line names."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return dict(re.findall(r"```python\n# (\S+)\n(.*?)```", text, flags=re.DOTALL))


def test_a_method_costs_one_file_and_three_lines(copy):
    """What CONTRIBUTING.md shows, done to the letter, passes everything that holds for all methods."""
    blocks = contributed_blocks()
    new, listing, example = blocks
    (copy / new).write_text(blocks[new])
    imported, entry = blocks[listing].rstrip().splitlines()
    edit(
        copy / listing,
        "from ropewalk.frequencies.interpolation",
        f"{imported}\nfrom ropewalk.frequencies.interpolation",
    )
    edit(copy / listing, "    ByParts,\n", f"    ByParts,\n{entry}\n")
    edit(copy / example, "    frequencies.NTKOld(factor=4),\n", f"    frequencies.NTKOld(factor=4),\n{blocks[example]}")
    shared = "architecture invariants test_equation.py test_pages.py"
    done = run_tests(copy, shared)
    assert done.returncode == 0, done.stdout
    shown = python(copy, "-m", "ropewalk", "show", "even_root:factor=8+log_n")
    assert "frequencies.even_root:factor=8" in shown.stdout, shown.stderr
    edit(copy / example, blocks[example], "")
    assert run_tests(copy, "invariants").returncode == 1
