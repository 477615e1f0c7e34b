"""docs/families: every command runs, on a small model with the lengths and rope parameters of the release it names."""

import re
import shlex
from pathlib import Path

import pytest
from families import NAMES, K, save_small

from ropewalk.cli.main import run
from ropewalk.measure.comparison import runner

from nightly import first_of_each

PAGES = sorted((Path(__file__).resolve().parents[1] / "docs" / "families").glob("*.md"))
BLOCK = re.compile(r"^```bash\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
SHORTENED = 128  # what is measured at each length is measured on models with shorter ones
MEASURING = ("compare", "fit")


def commands(page):
    """Every command of a page with the word behind it: native, lowered, plugin, same, differs, or refused: a reason."""
    lines = [line for block in BLOCK.findall(page.read_text()) for line in block.splitlines()]
    return [[part.strip() for part in f"{line}  #".split("  #")[:2]] for line in lines]


def shorter(argument):
    """Lengths such as 128k, divided."""
    return re.sub(r"\b(\d+)k\b", lambda length: str(int(length[1]) * K // SHORTENED), argument)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Folders with the models, and with those of shorter lengths."""
    places = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("shorter")
    for place, by in zip(places, (1, SHORTENED), strict=True):
        (place / "book.txt").write_text("The pass key is 71432. The grass is green.\n" * 3)
        for name in NAMES:
            save_small(name, place, by)
    return places


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_commands_of_a_page_do_what_it_says(page, hub, monkeypatch, capsys):
    for command, stated in commands(page):
        program, verb, *arguments = shlex.split(command)
        assert program == "ropewalk"
        monkeypatch.chdir(hub[verb in MEASURING])
        if verb in MEASURING:
            arguments = [arguments[0], *map(shorter, arguments[1:]), "--workers", "1"]
        capsys.readouterr()
        status = run([verb, *arguments])
        shown = capsys.readouterr()
        assert (status, command) == (expected_status(stated), command), shown.out + shown.err
        assert_stated(stated, shown)


COMPARED = [command for page in PAGES for command, _ in commands(page) if shlex.split(command)[1] == "compare"]


@pytest.mark.nightly
@pytest.mark.parametrize("command", first_of_each(COMPARED, name=lambda command: shlex.split(command)[2]))
def test_texts_of_the_lengths_that_are_stated_are_there(command, hub, monkeypatch, capsys):
    """As it is printed, up to the first text that is read: the corpus has texts so long, and the plan says so."""

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "result_of", stopped)
    monkeypatch.chdir(hub[0])
    assert run([*shlex.split(command)[1:], "--workers", "1"]) == 130
    said = capsys.readouterr().err
    stated = re.search(r"--lengths (\S+)", command)[1].split(",")
    *before, first, second = re.search(r" at (.+), up to 2 texts", said)[1].split(", ")
    assert [first, second] == stated, said
    assert before in ([], ["128k"]), said  # DeepSeek's trained length, where that is not among the stated ones


def expected_status(stated):
    return 2 if stated.startswith("refused") else 1 if stated == "differs" else 0


def assert_stated(stated, shown):
    if stated.startswith("refused: "):
        assert stated.removeprefix("refused: ") in shown.err
    else:
        assert shown.out.startswith(stated)
        assert shown.out


def test_every_release_is_on_a_page_and_every_page_has_commands():
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in NAMES if name not in text] == []
    assert [page.stem for page in PAGES if not commands(page)] == []
