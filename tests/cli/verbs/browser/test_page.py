"""`ropewalk page`, as a user runs it."""

import webbrowser

from ropewalk.cli.main import run
from ropewalk.page import html


def test_it_writes_one_file_and_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["page", "-o", "seen.html"]) == 0
    assert capsys.readouterr().out == "seen.html\n"
    assert [path.name for path in tmp_path.iterdir()] == ["seen.html"]
    assert (tmp_path / "seen.html").read_text("utf-8") == html()


def test_without_a_name_it_has_one_and_replaces_the_last(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ropewalk.html").write_text("old")
    assert run(["page"]) == 0
    assert capsys.readouterr().out == "ropewalk.html\n"
    assert (tmp_path / "ropewalk.html").read_text("utf-8") == html()


def test_it_opens_a_browser_when_asked(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open_new_tab", shown.append)
    assert run(["page", "-o", str(tmp_path / "page.html")]) == 0
    assert shown == []
    assert run(["page", "-o", str(tmp_path / "page.html"), "--open"]) == 0
    assert shown == [(tmp_path / "page.html").as_uri()]


def test_a_folder_is_no_file(tmp_path, capsys):
    for place in (str(tmp_path), ""):
        assert run(["page", "-o", place]) == 2
        assert "--out must be a file, such as page.html, got " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert run(["page", "-o", str(tmp_path / "file" / "page.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
