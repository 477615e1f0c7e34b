"""`ropewalk diagnose`, as it is called."""

import json
import re

import pytest
from measured_folder import small_folder

from ropewalk.cli.main import run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return small_folder(tmp_path_factory.mktemp("diagnose"))


def diagnose(place, *more):
    return run(["diagnose", str(place / "model"), *more, "--corpus", f"folder:{place / 'texts'}"])


@pytest.mark.nightly
def test_a_page_with_its_files_and_some_lines(place, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open_new_tab", lambda address: opened.append(address) or True)
    options = ("--length", "64", "-o", str(tmp_path / "out"), "--open", "--pictures=svg")
    assert diagnose(place, "rerope:window=8", *options) == 0
    assert opened == [(tmp_path / "out" / "diagnose.html").as_uri()]
    said = capsys.readouterr().out
    page = (tmp_path / "out" / "diagnose.html").read_text()
    assert str(tmp_path / "out" / "diagnose.html") in said.replace("\n", "")
    assert max(map(len, said.splitlines()[:-1])) <= 80
    stored = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert [side["line"] for side in stored["sides"]] == ["bare", "rerope:window=8"]
    assert stored["length"] == 64
    assert " ".join(stored["findings"][0].split()) in " ".join(said.split())
    named = [name.removesuffix(".gz") for name in re.findall(r'download="([\w.]+)"', page)]
    assert len(set(named)) == 2 * page.count("<figure id=") + 1 == 29  # a picture and CSV of each, and the JSON
    assert all((tmp_path / "out" / name).stat().st_size for name in named)
    assert not re.findall(r"(?:src|href)=\"(?:https?:|//)|<script [^>]*src|<link|@import", page)


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--length", "32"], "--length must be above the trained length (32)"),
        (["rerop"], "'rerop'"),
        (["nbce"], "extend cannot apply nbce, a method of decoding"),
        (["--texts=0"], "'--texts': Input should be greater than or equal to 1, got '0'"),
    ],
)
def test_errors_are_one_line(place, tmp_path, capsys, given, words):
    assert diagnose(place, *given, "-o", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
