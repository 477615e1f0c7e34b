"""A folder is there whole, or not at all."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from full_disk import room

from ropewalk import Conflict, InvalidValue
from ropewalk.folders import keep_out_others, make_folder, replace_files, require_new, require_writable, write_whole


def names(folder):
    return [each.name for each in folder.iterdir()]


def test_a_folder_appears_when_all_is_written(tmp_path):
    with make_folder(tmp_path / "deep" / "new") as place:
        (place / "file").write_text("whole")
        assert not (tmp_path / "deep" / "new").exists()
    assert (tmp_path / "deep" / "new" / "file").read_text() == "whole"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["new"]


def test_what_is_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for name in ("file", "full"):
        with pytest.raises(InvalidValue, match="new or empty"), make_folder(tmp_path / name):
            pass
    (tmp_path / "empty").mkdir()
    with make_folder(tmp_path / "empty") as place:
        (place / "file").touch()
    assert (tmp_path / "empty" / "file").exists()


def test_a_file_is_whole_or_as_it_was(tmp_path):
    place = tmp_path / "deep" / "file.json"
    write_whole(place, "first")
    write_whole(place, "second")
    with room(1000), pytest.raises(InvalidValue, match=r"written whole, got .*File too large.*make room"):
        write_whole(place, "third" * 1000)
    assert place.read_text() == "second"
    assert names(place.parent) == ["file.json"]


def test_files_that_belong_together_come_together(tmp_path):
    def both(first, second):
        with replace_files(tmp_path) as place:
            (place / "a").write_text(first)
            (place / "b").write_text(second)

    (tmp_path / "other").write_text("mine")
    both("1", "1")
    with room(1000), pytest.raises(InvalidValue, match="written whole"):
        both("2", "2" * 2000)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a": "1", "b": "1", "other": "mine"}
    both("3", "3")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a": "3", "b": "3", "other": "mine"}


@pytest.fixture
def order(monkeypatch):
    """What is brought onto the disk and what moves, in this order, by inodes."""
    events, sync, replace, rename = [], os.fsync, Path.replace, Path.rename
    monkeypatch.setattr(os, "fsync", lambda opened: (events.append(("sync", os.fstat(opened).st_ino)), sync(opened)))

    def moving(how):
        def move(path, target):
            events.append(("move", path.stat().st_ino))
            return how(path, target)

        return move

    monkeypatch.setattr(Path, "replace", moving(replace))
    monkeypatch.setattr(Path, "rename", moving(rename))
    return events


def test_what_moves_is_on_the_disk_before_and_its_name_after(tmp_path, order):
    """A power cut after the move must not leave a name without its bytes."""

    def write(place):
        (place / "inner").mkdir()
        for name in ("a", "inner/b"):
            (place / name).write_text(name)

    with replace_files(tmp_path / "some") as place:
        write(place)
    with make_folder(tmp_path / "new") as place:
        write(place)
    for folder, moved, parent in (("some", ("a", "inner"), "some"), ("new", ("",), "")):
        synced = [(tmp_path / folder / name).stat().st_ino for name in ("a", "inner", "inner/b")]
        moves = [order.index(("move", (tmp_path / folder / name).stat().st_ino)) for name in moved]
        assert all(order.index(("sync", inode)) < min(moves) for inode in synced)
        assert ("sync", (tmp_path / parent).stat().st_ino) in order[max(moves) :]


HOLDING = """
import sys
from pathlib import Path
from ropewalk.folders import keep_out_others
with keep_out_others(Path(sys.argv[1]), "another one writes here", "wait"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_held_by_one_process_however_it_ends(tmp_path):
    place, said = tmp_path / "out", "another one writes here"
    running = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout.readline() == "held\n"
        with pytest.raises(Conflict, match=f"{said}; wait"), keep_out_others(place, said, "wait"):
            pass
    finally:
        running.kill()
        running.communicate()
    with keep_out_others(place, "", ""), keep_out_others(place, "", ""):
        (place / "file").touch()
    assert names(place) == ["file"]
    with keep_out_others(tmp_path / "empty", "", ""):
        pass
    assert not (tmp_path / "empty").exists()


WRITING = """
import sys
from pathlib import Path
from ropewalk.folders import make_folder, replace_files
with {writer}(Path(sys.argv[1])) as place:
    (place / "half").write_text("half")
    print(place, flush=True)
    sys.stdin.read()
"""


@contextmanager
def writing(writer, directory):
    """Another process in the middle of writing, and where it writes."""
    command = [sys.executable, "-c", WRITING.format(writer=writer), str(directory)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield running, Path(running.stdout.readline().strip())
    finally:
        running.kill()
        running.communicate()


def once_more(writer, parent):
    """Another who writes in the same place, and leaves nothing."""
    if writer == "make_folder":
        with make_folder(parent / "another"):
            pass
        (parent / "another").rmdir()
    elif writer == "replace_files":
        with replace_files(parent):
            pass
    else:
        write_whole(parent / "another", "")
        (parent / "another").unlink()


@pytest.mark.parametrize("after", ["make_folder", "replace_files", "write_whole"])
@pytest.mark.parametrize("writer", ["make_folder", "replace_files"])
def test_what_a_killed_writer_left_is_removed_and_a_live_one_is_left_alone(tmp_path, writer, after):
    directory = tmp_path / "new" if writer == "make_folder" else tmp_path
    with writing(writer, directory) as (dead, left), writing(writer, directory) as (_, kept):
        assert left.parent == kept.parent == tmp_path
        once_more(after, tmp_path)
        assert (left / "half").exists()  # both write still
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert (left / "half").exists()
        opened = len(names(Path("/dev/fd")))
        once_more(after, tmp_path)
        assert len(names(Path("/dev/fd"))) == opened  # the lock of what was removed is closed
        assert names(tmp_path) == [kept.name]
        assert (kept / "half").exists()


@pytest.mark.parametrize("here", ["elsewhere", "h" * 63 + "x"])
def test_what_another_machine_writes_is_left_alone(tmp_path, monkeypatch, here):
    """Locks may hold on one machine only. Names of machines have 64 letters at most, and may differ in the last."""
    there = "h" * 63 + "y"
    with writing("replace_files", tmp_path) as (dead, left):
        dead.kill()
        dead.wait()
        theirs = left.rename(tmp_path / f".ropewalk-{there}-{left.name.rpartition('-')[2]}")
        for machine, remains in ((here, True), (there, False)):
            monkeypatch.setattr(socket, "gethostname", lambda machine=machine: machine)
            once_more("replace_files", tmp_path)
            assert theirs.exists() is remains


@pytest.mark.parametrize(
    ("umask", "expected"), [(0o022, (0o755, 0o644)), (0o077, (0o700, 0o600)), (0o002, (0o775, 0o664))]
)
def test_others_may_read_what_the_umask_lets_them(tmp_path, umask, expected):
    """Whoever made the file: some libraries make theirs for the owner alone."""
    before = os.umask(umask)
    try:
        with make_folder(tmp_path / "new") as place:
            (place / "inner").mkdir()
            for name in ("file", "inner/file"):
                os.close(os.open(place / name, os.O_CREAT | os.O_WRONLY, 0o600))
        write_whole(tmp_path / "whole", "")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "new/file")]
    assert tuple(modes) == expected
    assert (
        (tmp_path / "new/inner/file").stat().st_mode & 0o777 == (tmp_path / "whole").stat().st_mode & 0o777 == modes[1]
    )


NAMES = ["null\0byte", "half a pair \ud800", "x" * 300, "/".join(["y" * 200] * 40), "file/below"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("write", [require_writable, lambda place: write_whole(place, "x"), lambda place: once(place)])
def test_names_that_no_file_can_have(tmp_path, name, write):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidValue):
        write(tmp_path / name)
    assert names(tmp_path) == ["file"]


def once(place):
    with make_folder(place) as new:
        (new / "file").touch()


def test_text_with_bytes_that_are_none(tmp_path):
    """As a command has them that names a file so."""
    write_whole(tmp_path / "page", "--out a\udcffb")
    assert (tmp_path / "page").read_text("utf-8") == "--out a\\udcffb"


def broken_off(directory, failure):
    with make_folder(directory) as place:
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
    with pytest.raises(InvalidValue, match="folder must be a folder, or a new name for one"):
        require_writable(tmp_path / "file")
    require_writable(tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["file"]


def test_a_place_where_nothing_can_be_written_is_refused_before_the_work():
    """Permissions do not tell: they are not asked for the superuser, and a file system may be read-only."""
    place = Path("/proc")
    if not place.is_dir():
        pytest.skip("a folder where nobody can write")
    for check in (require_writable, lambda folder: require_new(folder / "new")):
        with pytest.raises(InvalidValue, match="where files can be written, got '/proc'"):
            check(place)
