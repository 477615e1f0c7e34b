"""`--open`: the page is handed to the browser, and nothing else happens."""

import pytest

from ropewalk.cli.main import run
from ropewalk.cli.output import open_page


@pytest.fixture
def asked(monkeypatch):
    pages = []
    monkeypatch.setattr("webbrowser.open_new_tab", lambda address: pages.append(address) or True)
    return pages


def test_the_page_is_opened_by_its_whole_address(asked, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    open_page(tmp_path.relative_to(tmp_path) / "a page.html", wanted=True)
    assert asked == [f"file://{tmp_path}/a%20page.html"]
    assert capsys.readouterr().out == ""


def test_nothing_is_opened_unasked(asked, tmp_path):
    open_page(tmp_path / "page.html", wanted=False)
    assert asked == []


def test_without_a_browser_the_page_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("webbrowser.open_new_tab", lambda address: False)
    open_page(tmp_path / "page.html", wanted=True)
    out, err = capsys.readouterr()
    assert out == ""  # which may be JSON
    assert err == f"No browser could be opened here; the page is {tmp_path}/page.html\n"


@pytest.mark.parametrize("verb", ["compare", "fit", "diagnose", "stream"])
def test_every_verb_that_writes_a_page_has_it(verb, capsys):
    assert run([verb, "--help"]) == 0
    assert "--open" in capsys.readouterr().out
