"""The guides: what they show is what runs, block by block, in a folder of their own."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from ropewalk.cli.main import run

from nightly import first_of_each

ROOT = Path(__file__).resolve().parents[1]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


@pytest.mark.nightly
@pytest.mark.filterwarnings(
    r"ignore:.*gradient_checkpointing. is deprecated:FutureWarning"
)  # trl 1.16 uses the old name
@pytest.mark.parametrize(
    "guide", first_of_each(GUIDES, lambda path: None if path.stem == "train-a-model" else path, lambda path: path.stem)
)
def test_guides_run(guide, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    for kind, text in BLOCK.findall(guide.read_text()):
        if kind == "python":
            printed = _printed(text, names)
        elif kind == "text":
            assert printed == text
        elif kind == "bash":
            for line in text.splitlines():
                _run_command(line, capsys)


def _printed(text: str, names: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "guide", "exec"), names)
    return out.getvalue()


def _run_command(line: str, capsys) -> None:
    program, *arguments = shlex.split(line, comments=True)
    assert program == "ropewalk"
    status = run(arguments)
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert shown.out


def test_every_kind_of_block_is_known():
    kinds = {kind for guide in GUIDES for kind, _ in BLOCK.findall(guide.read_text())}
    assert kinds <= {"python", "text", "bash", "math", ""}


def test_the_package_is_not_said_to_be_on_the_index():
    for page in [*GUIDES, *ROOT.glob("*.md")]:
        assert "pip install ropewalk" not in page.read_text()
