"""`ropewalk stream`, as it is called."""

import json

import pytest
from measured_folder import small_folder

from ropewalk.cli.main import run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return small_folder(tmp_path_factory.mktemp("stream"), texts=60, words=120, trained_len=64)


def stream(place, *given):
    return run(["stream", str(place / "model"), *given, "--corpus", f"folder:{place / 'texts'}"])


def test_a_table_words_and_files(place, tmp_path, capsys):
    assert stream(place, "streaming", "--tokens", "2k", "--piece", "128", "-o", str(tmp_path / "out")) == 0
    said = capsys.readouterr().out
    assert "2,048 tokens in" in said
    assert "the corpus was too short" in said
    stored = json.loads((tmp_path / "out" / "stream.json").read_text())
    assert stored["extension"]["reach"]["name"] == "sinks"
    assert stored["line"] == "streaming"
    assert stored["cache_bytes"] == 2 * 2 * 2 * 16 * 64 * 4  # layers, heads, both, dimensions, the trained length
    assert len(stored["stretches"]) == 16


def test_without_a_folder_nothing_is_written(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert stream(place, "yarn", "--tokens", "200") == 0
    assert list(tmp_path.iterdir()) == []
    assert "200 tokens in" in capsys.readouterr().out


def test_open_alone_writes_the_page_and_shows_it(place, tmp_path, monkeypatch, capsys):
    shown = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open_new_tab", lambda address: shown.append(address) or True)
    assert stream(place, "yarn", "--tokens", "200", "--open") == 0
    assert shown == [f"file://{tmp_path}/ropewalk-stream/stream.html"]
    assert "Written to ropewalk-stream; the page is stream.html" in capsys.readouterr().out
    stored = json.loads((tmp_path / "ropewalk-stream" / "stream.json").read_text())
    assert (stored["model"], stored["line"]) == ("model", "yarn")
    assert stored["when"].startswith("20")


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["streaming", "--tokens", "many"], "--tokens must be a whole number"),
        (["streaming", "--tokens", "64"], "--tokens must be above the trained length (64)"),
        (["streeming"], "'streeming'"),
        (["nbce", "--tokens", "200"], "extend cannot apply nbce, a method of decoding"),
    ],
)
def test_errors_are_one_line(place, capsys, given, words):
    assert stream(place, *given) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_short_text_is_read_in_pieces_too(place, tmp_path):
    assert stream(place, "streaming", "--tokens", "2k", "-o", str(tmp_path / "out")) == 0
    found = json.loads((tmp_path / "out" / "stream.json").read_text())
    assert found["piece"] == 512
    assert len(found["stretches"]) == 4
