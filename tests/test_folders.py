"""A folder is there whole, or not at all."""

import pytest

from ropewalk import InvalidValue
from ropewalk.folders import appearing, require_writable, write_whole


def test_a_folder_appears_when_all_is_written(tmp_path):
    with appearing(tmp_path / "deep" / "new") as place:
        (place / "file").write_text("whole")
        assert not (tmp_path / "deep" / "new").exists()
    assert (tmp_path / "deep" / "new" / "file").read_text() == "whole"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["new"]


def test_what_is_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for name in ("file", "full"):
        with pytest.raises(InvalidValue, match="new or empty"), appearing(tmp_path / name):
            pass
    (tmp_path / "empty").mkdir()
    with appearing(tmp_path / "empty") as place:
        (place / "file").touch()
    assert (tmp_path / "empty" / "file").exists()


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    place = tmp_path / "deep" / "file.json"
    write_whole(place, "first")
    write_whole(place, "second")
    full = lambda path, text: (path.open("w").close(), broken(OSError(28, "No space left on device")))  # noqa: E731
    monkeypatch.setattr(type(place), "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(place, "third")
    assert place.read_text() == "second"


def broken(failure):
    raise failure


def broken_off(directory, failure):
    with appearing(directory) as place:
        (place / "file").touch()
        raise failure


@pytest.mark.parametrize(
    ("failure", "said", "words"),
    [(OSError(28, "No space left on device"), InvalidValue, "No space.*make room"), (KeyError("x"), KeyError, "x")],
)
def test_nothing_is_left_of_what_failed(tmp_path, failure, said, words):
    with pytest.raises(said, match=words):
        broken_off(tmp_path / "new", failure)
    assert list(tmp_path.iterdir()) == []


def test_a_place_for_results_is_tried_and_left_as_it_was(tmp_path):
    require_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InvalidValue, match="--out must be a folder, or a new name for one"):
        require_writable(tmp_path / "file")
    require_writable(tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["file"]
