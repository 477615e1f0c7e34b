"""The front pages: what they show is what runs."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from ropewalk import Conflict, __version__, extend, parse
from ropewalk.cli.main import run
from ropewalk.cli.parser import app
from ropewalk.models import DEFAULT

from nightly import first_of_each

ROOT = Path(__file__).resolve().parents[1]
README, CHINESE = ((ROOT / name).read_text() for name in ("README.md", "README.zh.md"))
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
SKILL = (ROOT / "skills" / "ropewalk" / "SKILL.md").read_text()
AGENTS = (ROOT / "AGENTS.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", flags=re.DOTALL)
BLOCKS = BLOCK.findall(README)
COMMANDS = [line.split("#")[0].strip() for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
OURS = [command for command in COMMANDS if command.startswith("ropewalk ")]
INLINE = sorted(
    {
        command
        for text in (README, CHINESE, SKILL, *(path.read_text() for path in GUIDES))
        for command in re.findall(r"`(ropewalk [a-z]+ (?!--help`)[^`\n]*)`", text)
    }
)


def test_the_first_lines_extend_a_model():
    """That which comes with Ropewalk, in place of one from the hub; a second extension would be refused."""
    (text,) = [text for kind, text in BLOCKS if kind == "py"]
    real, names = "HuggingFaceTB/SmolLM2-135M-Instruct", {}
    assert real in text
    exec(compile(text.replace(real, str(DEFAULT)), "README.md", "exec"), names)
    with pytest.raises(Conflict):
        extend(names["model"], "yarn", target_len=4096)


def test_the_first_result_comes_early():
    assert README[: README.index("| `self_extend+log_n`")].count("\n") < 40


# The page reads texts for a minute; tests/page has shorter ones, by day.
@pytest.mark.parametrize("command", first_of_each(OURS, lambda one: None if one.startswith("ropewalk page") else one))
def test_commands_run(command, tmp_path):
    """Through the module, since the command may not be on the path of the tests."""
    arguments = ["-m", "ropewalk", *shlex.split(command)[1:]]
    done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_shell_line_is_checked_by_some_test():
    known = ("ropewalk ", "make ", "pip install . -c constraints.txt")
    assert all(command.startswith(known) for command in COMMANDS)


@pytest.mark.sampled(cases=12)
@pytest.mark.parametrize("command", INLINE)
def test_commands_within_the_text_are_understood(command, tmp_path, monkeypatch, capsys):
    """Parsed by the verb itself; extensions, recipes and their settings are looked up."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("text")
    verb, *arguments = shlex.split(command)[1:]
    parser = get_command(app)
    parsed = parser.get_command(parser.make_context("ropewalk", [verb]), verb).make_context(verb, arguments).params
    extensions = [*(parsed.get("extensions") or ()), *filter(None, [parsed.get("extension")])]
    if verb == "train":
        settings = dict(each.split("=", 1) for each in parsed["settings"] or ())
        assert run(["train", parsed["recipe"], "--list"]) == 0
        assert set(settings) <= set(capsys.readouterr().out.split())
        extensions += [settings["extension"]] if "extension" in settings else []
    for line in extensions:
        parse(line, trained_len=4096, target_len=32768, layers=12, key_heads=4)  # as a model says


def test_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {command.split()[1] for command in COMMANDS if command.startswith("make")} <= set(targets)


def test_the_page_for_agents_names_what_is_there():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", AGENTS)) <= targets
    places = [
        *re.findall(r"`((?:ropewalk|tests|tools|studies)/[\w./]+)`", AGENTS),
        *re.findall(r"\]\(([^)]+)\)", AGENTS),
    ]
    assert len(places) > 8
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("inspect default --to 4k", "trained_len own_schedule under_trained methods"),
        ("check default --engine vllm", "verdict findings flags"),
        ("compare default yarn --lengths 512,1k --samples 2 --tasks context -o {out}", "candidates last_alone"),
        ("export default yarn --to 4k --target vllm -o {out}", "command"),
    ],
)
def test_the_skill_names_keys_that_are_printed(command, keys, tmp_path, capsys):
    assert run([*shlex.split(command.format(out=tmp_path / "out")), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert all(key in printed and f"`{key}" in SKILL for key in keys.split())
    for parts, named in (
        ("methods", "name applies why_not cache_bytes"),
        ("candidates", "verdict change reach cache_bytes"),
    ):
        assert not printed.get(parts) or all(key in printed[parts][0] and key in SKILL for key in named.split())


def test_the_chinese_page_shows_the_same():
    assert [_without_comments(*block) for block in BLOCK.findall(CHINESE)] == [_without_comments(*it) for it in BLOCKS]
    figures = [line for line in README.splitlines() if line.startswith("| `") and "%" in line]
    assert len(figures) == 6
    chinese = [line for line in CHINESE.splitlines() if line.startswith("| `") and "%" in line]
    numbers = [re.findall(r"`.*?`|[+-]?[\d.]+%?|-", line) for line in figures]
    assert [re.findall(r"`.*?`|[+-]?[\d.]+%?|-", line) for line in chinese] == numbers
    links = {target for target in re.findall(r"\]\((?!http)([^)#]+)", README) if "README" not in target}
    assert links <= set(re.findall(r"\]\((?!http)([^)#]+)", CHINESE.replace("docs/zh/guides/", "docs/guides/")))


def _without_comments(kind: str, text: str) -> tuple[str, list[str]]:
    """A block as it runs: comments are in the language of their page."""
    return kind, [re.sub(r"\s+# .*", "", line) for line in text.splitlines()]


def test_every_article_of_kexue_is_mapped_to_a_command():
    cited = set(re.findall(r"kexue\.fm/(\d+)", (ROOT / "docs" / "methods.md").read_text()))
    rows = [
        line
        for line in CHINESE.splitlines()
        if "kexue.fm/archives" in line and ("`ropewalk " in line or "`python -m studies " in line)
    ]
    assert cited <= {number for row in rows for number in re.findall(r"kexue\.fm/archives/(\d+)", row)}


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
    assert len([command for command in COMMANDS if command.startswith("ropewalk ")]) >= 3


def test_the_version_is_the_same_everywhere():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{__version__}] - " in (ROOT / "CHANGELOG.md").read_text()
