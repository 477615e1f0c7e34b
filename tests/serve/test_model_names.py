"""Names of models: every spelling of an extension is one model, and no name opens a file."""

import pytest
from hypothesis import given, strategies as st

from ropewalk.serve.refusals import Refusal
from ropewalk.serve.service import ServedModels

from serve.fake_engine import FakeEngine

MODELS = ServedModels(FakeEngine(), "rerope+log_n")


@pytest.mark.parametrize(
    ("asked", "extension"),
    [
        (None, "rerope+log_n"),
        ("default", "rerope+log_n"),
        ("default@bare", "bare"),
        ("default@log_n+rerope", "rerope+log_n"),
        ("default@ rerope + log_n", "rerope+log_n"),
        ("default@yarn:factor=4.0", "yarn:factor=4"),
        ("default@streaming:n_sink=4,window=252", "streaming:window=252,n_sink=4"),
    ],
)
def test_spellings_of_one_extension_are_one_model(asked, extension):
    assert MODELS.find(asked).extension == extension
    assert MODELS.find(asked).id == f"default@{extension}"


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("defualt", "default"),
        ("default@yarn:factor=8", "default@yarn:factor=4"),
        ("default@rerope+logn", "default@rerope+log_n"),
        ("default@streaming", "default@streaming:window=252,n_sink=4"),
        ("Default", "default"),
        ("default@BARE", "default@bare"),
    ],
)
def test_the_nearest_name_is_suggested(asked, nearest):
    with pytest.raises(Refusal) as refused:
        MODELS.find(asked)
    assert f"did you mean {nearest!r}?" in refused.value.message
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")


def test_what_is_wrong_with_an_extension_is_said():
    with pytest.raises(Refusal, match="did you mean 'factor'"):
        MODELS.find("default@yarn:faktor=4")


@pytest.mark.parametrize("suffix", ["", " ", "\n"])
def test_no_name_opens_a_file(suffix, tmp_path, monkeypatch):
    stored = tmp_path / "extension.json"
    stored.write_text('{"scales": [{"name": "log_n"}]}')
    monkeypatch.setattr("ropewalk.extension.parsing.read_text", lambda *_: pytest.fail("a file was opened"))
    with pytest.raises(Refusal):
        MODELS.find(f"default@{stored}{suffix}")


@pytest.mark.parametrize("line", ["{path}:Half:factor=4", "log_n+{path}", "resonance:inner=({path}:Half:factor=4)"])
def test_no_name_runs_a_file(line, tmp_path):
    path = tmp_path / "my.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(Refusal):
        MODELS.find(f"default@{line.format(path=path)}")
    assert not (tmp_path / "ran").exists()


def test_long_names_are_cut():
    with pytest.raises(Refusal) as refused:
        MODELS.find("x" * 100_000)
    assert len(refused.value.message) < 500


@given(st.text(max_size=60))
def test_every_name_is_known_or_refused(name):
    for asked in (name, f"default@{name}"):
        try:
            MODELS.find(asked)
        except Refusal as refused:
            status = refused.status
            assert status == 404
