"""docs/performance.md shows the order of the backends as the code has it, and of which versions its figures are."""

import json
import re
from pathlib import Path

import pytest

from ropewalk.attention.backends.choose import choices

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.jsonl"))
ALLOWED = dict(re.findall(r'"(torch|transformers)>=([0-9.]+)', (ROOT / "pyproject.toml").read_text()))


def as_numbers(version):
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def older_versions(file):
    """The versions of a file's records that the package does not allow, as `torch 2.11`."""
    for line in file.read_text().splitlines():
        for name, version in re.findall(r'"(torch|transformers)": "(\d[^"]*)"', line):
            if as_numbers(version) < as_numbers(ALLOWED[name]):
                yield f"{name} {'.'.join(map(str, as_numbers(version)))}"


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_figures_of_versions_that_the_package_does_not_allow_are_called_so(file):
    assert set(ALLOWED) == {"torch", "transformers"}
    for older in set(older_versions(file)):
        page = " ".join(PAGE.read_text().split())
        assert f"All that follows is of {older}, since the GPU that was lent" in page
        assert "`pyproject.toml` does not allow it" in page
        assert older in (ROOT / "README.md").read_text()


def test_the_readmes_count_what_the_gpu_passed():
    every = json.loads((ROOT / "benchmarks" / "results" / "gpu_tests.jsonl").read_text().splitlines()[-1])["rows"]
    rows = [row for row in every if (ROOT / row["file"]).exists()]  # a kernel that was removed was tested too
    passed, failed = (sum(row[kind] for row in rows) for kind in ("passed", "failed"))
    not_run = sum(int(cell) for cell in re.findall(r"^  \|.*\| (\d+) \|$", PAGE.read_text(), re.MULTILINE))
    assert f"{passed} passed, {failed} failed and {not_run} were not run" in (ROOT / "README.md").read_text()
    chinese = (ROOT / "README.zh.md").read_text()
    assert f"{passed} 项通过，{failed} 项失败，{not_run} 项未运行" in chinese


def test_the_order_of_the_backends_is_current():
    assert f"```text\n{choices()}\n```" in PAGE.read_text(), "copy what choices() returns into docs/performance.md"
