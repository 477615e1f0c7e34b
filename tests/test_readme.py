"""The front page: what it shows is what runs."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [line.split("#")[0].strip() for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]


def test_the_snippets_print_what_follows_them():
    snippets = [text for kind, text in BLOCKS if kind == "python"]
    answers = [text for kind, text in BLOCKS if kind == "text"]
    assert len(snippets[0].strip().splitlines()) <= 8
    names: dict[str, object] = {}
    for snippet, expected in zip(snippets, answers, strict=True):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(snippet, "README.md", "exec"), names)
        assert out.getvalue() == expected


def test_the_first_result_comes_early():
    assert README[: README.index("```text")].count("\n") < 40


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith(".venv/bin/ropewalk ")])
def test_commands_run(command):
    """Through the module, since the tests may run in another environment than .venv."""
    arguments = ["-m", "ropewalk", *shlex.split(command)[1:]]
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {command.split()[1] for command in COMMANDS if command.startswith("make")} <= set(targets)


def test_links_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md", "docs/performance.md", "docs/log.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / page).read_text()):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_the_first_look_tells_known_from_new():
    done = subprocess.run(
        [sys.executable, "examples/first_look.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = {cells[0]: cells[1:] for line in done.stdout.splitlines() if (cells := line.strip("│ ").split("│"))[1:]}
    rows = {name.strip(): [cell.strip() for cell in cells] for name, cells in rows.items()}
    assert rows["rope"] == ["4,096", "8.01 (new)", "1.00", "x 1.00"]
    assert rows["pi"] == ["4,096", "1.00", "8.00", "x 1.00"]
    assert rows["streaming"] == ["512", "1.00", "1.00", "x 1.00"]
    assert rows["rerope+log_n"] == ["4,096", "0.25", "1.00", "x 1.33"]


def test_the_readme_has_commands():
    assert len([command for command in COMMANDS if command.startswith(".venv/bin/ropewalk ")]) >= 3
