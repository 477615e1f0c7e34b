"""`ropewalk page`, as a user runs it."""

import webbrowser

import pytest

from ropewalk.cli.main import run
from ropewalk.page import html

from hf.models import tiny


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


@pytest.mark.nightly
@pytest.mark.parametrize("of", ["", "config.json"])
def test_a_model_and_two_extensions(chromium, tmp_path, of):
    """By its config alone; an address with a view of its own counts more."""
    config = tiny("llama", max_position_embeddings=32768, rope_theta=1e6).config
    config.save_pretrained(tmp_path / "model")
    place = tmp_path / "page.html"
    lines = ["yarn", "self_extend+log_n"]
    assert run(["page", str(tmp_path / "model" / of), *lines, "--to", "128k", "-o", str(place)]) == 0
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(place.as_uri())
        page.wait_for_selector("body[data-ready]")
        assert [page.input_value(f"#line-{side}") for side in "ab"] == lines
        assert page.text_content("#to-shown") == "131,072 tokens · 4×"
        assert "trained on 32,768 tokens" in page.text_content("#model-summary")
        assert "base 1,000,000 · 4 heads" in page.text_content("#model-summary")
        page.reload()
        page.wait_for_selector("body[data-ready]")
        assert page.text_content("#to-shown") == "131,072 tokens · 4×"
        other = context.new_page()
        other.goto(place.as_uri() + "#a=ntk&to=65536")
        other.wait_for_selector("body[data-ready]")
        assert other.input_value("#line-a") == "ntk"
        assert other.text_content("#to-shown") == "65,536 tokens · 2×"


@pytest.mark.nightly
def test_lines_and_a_length_of_its_own(chromium, tmp_path):
    """More lines than two are kept for typing, and a schedule that the model came with is named."""
    scaling = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
    tiny("llama", max_position_embeddings=256, rope_parameters=scaling).config.save_pretrained(tmp_path / "model")
    place = tmp_path / "page.html"
    lines = ["ntk:factor=3", "rope", "pi:factor=5"]
    assert run(["page", str(tmp_path / "model"), *lines, "--to", "700", "-o", str(place)]) == 0
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(place.as_uri() + "#lang=en")
        page.wait_for_selector("body[data-ready]")
        assert page.text_content("#to-shown") == "700 tokens · 2.73×"
        assert "its own schedule: yarn, factor 4 (64 to 256 tokens)" in page.text_content("#model-summary")
        page.fill("#line-b", "pi:factor=5")
        page.wait_for_function(
            "() => document.querySelector('#about-b code')?.textContent === '= interpolation:factor=5'"
        )
        assert "ropewalk export says" in page.text_content("#use-b")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["no/such/model"], "model must be an existing folder, a GGUF file"),
        (["default", "yarm"], "did you mean 'yarn'"),
        (["default", "yarn", "--to", "0"], "--to must be at least 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, capsys, given, words):
    assert run(["page", *given, "-o", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
