"""A broken formula must turn a test red: each mutant is a copy of the package with one edit, in its own process."""

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from ropewalk.train.small_models import ModelShape, new_small_model

from architecture.tree import FACTORS
from mutants.mutations import MUTATIONS, STUDIES
from nightly import first_of_each
from train.texts import folder_of, tokenizer

ROOT = Path(__file__).resolve().parents[2]
FORMULAS = {*FACTORS, "presets", "equation.py"}
PLAIN = ["-x", "-q", *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:anyio")]
PLAIN += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is warm was not imported by pytest
PLAIN += ["--deselect", "tests/architecture/test_budgets.py::test_the_house_does_not_grow"]  # a new file has lines


@pytest.fixture(scope="session")
def unchanged(tmp_path_factory):
    """The package and its tests, away from the checkout, so that they are what gets imported.

    They are compiled once, and known by their hashes: what is edited is compiled anew, however soon after.
    """
    place, left = tmp_path_factory.mktemp("unchanged"), ("__pycache__", "mutants", "model.safetensors", "results")
    for folder in ("ropewalk", "tests", "studies"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns(*left))
    for name in ("pyproject.toml", "CONTRIBUTING.md", "DESIGN.md"):
        shutil.copy(ROOT / name, place / name)
    compileall.compile_dir(place / "ropewalk", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return place


@pytest.fixture
def copy(unchanged, tmp_path):
    """A copy of one's own."""
    return shutil.copytree(unchanged, tmp_path, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def run_tests():
    """Tests of the copy in a folder, in a fork of one process that is warm: the exit status, and what was said."""
    arguments = [sys.executable, Path(__file__).with_name("warm.py")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as warm:

        def run(folder, tests):
            paths = [name if name.startswith(STUDIES) else f"tests/{name}" for name in tests.split()]
            request = {"folder": str(folder), "arguments": [*PLAIN, *paths], "output": str(folder / "output")}
            print(json.dumps(request), file=warm.stdin, flush=True)
            status = int(warm.stdout.readline())
            *said, tested = (folder / "output").read_text().splitlines()
            assert Path(tested).resolve() == (folder / "ropewalk").resolve(), said
            return status, "\n".join(said)

        yield run
        warm.stdin.close()


def edit(path, old, new):
    text = path.read_text()
    assert old in text, f"{path.name} no longer has: {old}"
    path.write_text(text.replace(old, new, 1))


@contextmanager
def edited(path, old, new):
    """An edit, and what was there again."""
    before = path.read_text()
    edit(path, old, new)
    try:
        yield
    finally:
        path.write_text(before)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "tests",
    first_of_each(
        [
            "methods/frequencies methods/reach methods/scales test_bad_input.py",
            "architecture train/test_length_schedule.py",
        ]
    ),
)
def test_an_unchanged_copy_passes(unchanged, run_tests, tests):
    """The control: what fails below fails for its edit. All else passes unchanged in the suite that this is part of."""
    status, said = run_tests(unchanged, tests)
    assert status == 0, said


def test_every_edit_is_of_a_line_that_is_there():
    """By day only some of them are run."""
    assert [one.name for one in MUTATIONS if one.old not in (ROOT / one.path).read_text()] == []


def named(name):
    """Whether a test, a file of tests or a folder is there, by the name that pytest takes."""
    path, _, test = (name if name.startswith(STUDIES) else f"tests/{name}").partition("::")
    if not test:
        return (ROOT / path).exists()
    function = test.partition("[")[0]
    return (ROOT / path).is_file() and f"\ndef {function}(" in (ROOT / path).read_text()


def test_every_edit_names_tests_that_are_there():
    """By day only some of them are run."""
    gone = [f"{one.name}: {name}" for one in MUTATIONS for name in one.tests.split() if not named(name)]
    assert gone == []


def file_of_formulas(mutation):
    return mutation.file if mutation.file.partition("/")[0] in FORMULAS else None


@pytest.mark.nightly
@pytest.mark.parametrize("mutation", first_of_each(MUTATIONS, file_of_formulas, lambda mutation: mutation.name))
def test_a_mutant_is_caught(unchanged, run_tests, mutation):
    with edited(unchanged / mutation.path, mutation.old, mutation.new):
        status, said = run_tests(unchanged, mutation.tests)
    assert status == 1, said  # pytest's answer for failed tests; 2 would be a broken edit
    assert not any(f"{missing}Error" in said for missing in ("FileNotFound", "Import", "ModuleNotFound")), said


@pytest.mark.nightly
def test_a_method_outside_the_list_is_caught(copy, run_tests):
    frequencies = copy / "ropewalk" / "methods" / "frequencies"
    frequencies.joinpath("ntk_mine.py").write_text(frequencies.joinpath("abf.py").read_text())
    assert run_tests(copy, "architecture")[0] == 1


@pytest.mark.nightly
def test_a_method_without_an_example_is_caught(copy, run_tests):
    edit(copy / "tests" / "examples.py", "    frequencies.NTKOld(factor=4),\n", "")
    assert run_tests(copy, "invariants")[0] == 1


def contributed_blocks(section):
    """The code blocks of a section of CONTRIBUTING.md, by the file that their first line names."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"```python\n# (\S+)\n(.*?)```", text, flags=re.DOTALL))


def ropewalk(copy, *arguments, beside=""):
    """The command line of the copy, with packages in a folder beside it."""
    command = [sys.executable, "-m", "ropewalk", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(copy), str(beside)]))}
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.nightly
def test_a_method_costs_one_file_and_three_lines(copy, run_tests):
    """What CONTRIBUTING.md shows, done to the letter, passes everything that holds for all methods."""
    blocks = contributed_blocks("A method of your own")
    new, listing, example = blocks
    (copy / new).write_text(blocks[new])
    imported, entry = blocks[listing].rstrip().splitlines()
    edit(
        copy / listing,
        "from ropewalk.methods.frequencies.interpolation",
        f"{imported}\nfrom ropewalk.methods.frequencies.interpolation",
    )
    edit(copy / listing, "    ByParts,\n", f"    ByParts,\n{entry}\n")
    edit(copy / example, "    frequencies.NTKOld(factor=4),\n", f"    frequencies.NTKOld(factor=4),\n{blocks[example]}")
    drawn = "page/test_drawing.py::test_every_method_is_drawn"
    shared = f"architecture invariants test_equation.py methods/test_docstrings.py {drawn}"
    status, said = run_tests(copy, shared)
    assert status == 0, said
    shown = ropewalk(copy, "show", "even_root:factor=8+log_n")
    assert "frequencies.even_root:factor=8" in shown.stdout, shown.stderr
    edit(copy / example, blocks[example], "")
    assert run_tests(copy, "invariants")[0] == 1


@pytest.mark.nightly
def test_a_recipe_costs_one_file_and_one_line(copy, run_tests):
    """What CONTRIBUTING.md shows, done to the letter: the recipe is listed, trains and resumes."""
    blocks = contributed_blocks("A recipe of your own")
    new, listing = blocks
    (copy / new).write_text(blocks[new])
    edit(copy / listing, "RECIPES = (\n", f"RECIPES = (\n{blocks[listing]}")
    listed = "cli/verbs/test_train.py::test_everything_is_listed_with_what_it_must_be"
    status, said = run_tests(copy, f"architecture {listed}")
    assert status == 0, said
    new_small_model(ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=2, trained_len=32)).save_pretrained(
        copy / "m"
    )
    tokenizer().save_pretrained(copy / "m")
    settings = {"model": copy / "m", "corpus": folder_of(copy / "texts"), "length": 64, "steps": 2, "rows": 2}
    command = ["train", "echo", "--out", copy / "run"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    for _ in range(2):
        done = ropewalk(copy, *command)
        assert f"Trained: {copy / 'run' / 'model'}" in done.stdout, done.stderr
    assert (copy / "run" / "checkpoint-2").is_dir()


@pytest.mark.nightly
def test_a_task_costs_one_file_and_two_lines(copy, run_tests):
    """What CONTRIBUTING.md shows, done to the letter, is measured by the shared tests and by `compare --tasks`."""
    blocks = contributed_blocks("A task of your own")
    new, listing = blocks
    (copy / new).write_text(blocks[new])
    imported, entry = blocks[listing].rstrip().splitlines()
    first = "from ropewalk.measure.tasks.task import"
    edit(copy / listing, first, f"{imported}\n{first}")
    edit(copy / listing, "    Damage,\n", f"    Damage,\n{entry}\n")
    status, said = run_tests(copy, "architecture measure/tasks/test_tasks.py measure/tasks/test_task_line.py")
    assert status == 0, said
    model = ROOT / "ropewalk" / "models" / "default"
    options = ["--lengths", "512", "--samples", "2", "--tasks", "shuffled", "--workers", "1", "--out", copy / "report"]
    shown = ropewalk(copy, "compare", model, "yarn:factor=2", *options)
    assert "shuffled: loss" in shown.stdout, shown.stderr
    assert "what the order of the far text is worth" in (copy / "report" / "report.html").read_text()


@pytest.mark.nightly
def test_a_task_costs_one_file_of_the_user_s(copy):
    """What CONTRIBUTING.md shows: a file, named by its path, and a package with an entry point."""
    text = contributed_blocks("A task without editing the package")["my_task.py"]
    mine, options = copy / "mine", ["--lengths", "512", "--samples", "2", "--workers", "2"]
    info = mine / "my_package-1.0.dist-info"
    info.mkdir(parents=True)
    (mine / "my_package").mkdir()
    (mine / "my_package" / "my_task.py").write_text(text)
    (mine / "my_task.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text().partition('entry-points."ropewalk.tasks"]\n')
    line = section.partition("```")[0].replace('"', "")
    (info / "entry_points.txt").write_text(f"[ropewalk.tasks]\n{line}")
    model = ROOT / "ropewalk" / "models" / "default"
    for name, folder in (("./mine/my_task.py:depth=0.2", "by-file"), ("colours:depth=0.2", "by-name")):
        command = ["compare", model, "yarn:factor=2", *options, "--tasks", name, "--out", copy / folder]
        shown = ropewalk(copy, *command, beside=mine)
        assert "colours: right" in shown.stdout, shown.stderr
        assert "the thing that was mentioned far back" in (copy / folder / "report.html").read_text()
    by_file, by_name = (json.loads((copy / folder / "results.json").read_text()) for folder in ("by-file", "by-name"))
    assert [task["name"] for task in by_file["tasks"]] == ["context", "colours"]
    assert len(by_file["tasks"][1]["source"]) == 16
    assert by_file["tasks"] == by_name["tasks"]
    assert by_file["candidates"][1]["rows"] != []


USED = """
import torch
from ropewalk import Facts, parse, reference_attention
from ropewalk.attention import attend, explain
from ropewalk.attention.backends.choose import choices

facts = Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2)
extension, generator = parse("rerope:window=20+log_n"), torch.Generator().manual_seed(0)
q, k, v = (torch.randn(2, heads, 50, size, generator=generator) for heads, size in ((4, 16), (2, 16), (2, 6)))
print(explain(q, k, v, extension, facts))
error = (attend(q, k, v, extension, facts).double() - reference_attention(q, k, v, extension, facts)).abs().max()
print("right" if error < 1e-5 else error)
print(choices())
"""
HOLDS = "test_something_always_carries test_every_backend_is_a_candidate_somewhere test_the_page_of_choices_is_the_list"


@pytest.mark.nightly
def test_a_backend_costs_one_file_and_its_lines_in_one_list(copy, run_tests):
    """What CONTRIBUTING.md shows for a backend, done to the letter."""
    blocks = contributed_blocks("A backend of your own")
    new, listing = (name for name in blocks if name.startswith("ropewalk/attention/backends/"))
    imported, row = blocks[listing].rstrip().splitlines()
    (copy / new).write_text(blocks[new])
    before = "from ropewalk.attention.backends.flash import FLASH\n"
    edit(copy / listing, before, f"{imported}\n{before}")
    case = row.partition(": ")[0]
    old = next(line for line in (copy / listing).read_text().splitlines() if line.startswith(case))
    edit(copy / listing, old, row)
    checks = " ".join(f"attention/backends/test_choose.py::{name}" for name in HOLDS.split())
    status, output = run_tests(copy, f"architecture {checks}")
    assert status == 0, output
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, "-c", USED], cwd=copy, env=environment, capture_output=True, text=True)
    explained, verdict, *table = done.stdout.splitlines()
    assert "exact: the formula over 50 keys in float64; the fused kernels need values of the same size" in explained
    assert verdict == "right", done.stderr
    assert "flash, exact, dense" in "".join(table)
    edit(copy / listing, row, old)
    assert run_tests(copy, checks)[0] == 1  # outside the list it is noticed
