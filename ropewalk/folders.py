"""Folders and files that appear whole or not at all.

Files are written to a temporary folder beside their place until they are whole and on the disk. The writing process
locks that folder; the lock ends with the process, however it ends, so the next writer knows what a killed one has left.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, RopewalkError
from ropewalk.files import why

try:
    import fcntl
except ImportError:  # Windows has no such locks: nobody knows who still writes there, so nothing is removed
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Messages of libraries that do not raise OSError when a write fails: safetensors, torch.save, SQLite.
WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "PytorchStreamWriter failed writing",
    "inline_container.cc",
    "database or disk is full",
    "disk I/O error",
)
LEFT = ".ropewalk-{machine}-{mark}.part"  # a lock may hold on one machine only
_HELD: set[Path] = set()  # the folders that this process keeps others out of
Failures = tuple[type[Exception], ...]


def full_disk_error(wrong: BaseException | None) -> BaseException | None:
    """The error that says that a disk is full: this one or its cause; None where neither does."""
    if wrong is None:
        return None
    says = isinstance(wrong, OSError) and wrong.errno in FULL
    return wrong if says or any(word in str(wrong) for word in WORDS) else full_disk_error(wrong.__cause__)


@contextmanager
def refuse_full_disk(place: object, remedy: str) -> Iterator[None]:
    """Report a full disk in one line, whichever library met it."""
    try:
        yield
    except RopewalkError:
        raise
    except Exception as wrong:
        reason = full_disk_error(wrong)
        if reason is None:
            raise
        raise DoesNotFit("disk", f"large enough to write to {place}", why(reason), remedy=remedy) from wrong


def require_writable(directory: Path) -> None:
    """Refuse, before the work begins, a path that cannot be a folder or in which nothing can be written.

    A file without a name is written there, since permissions do not tell; nothing is left behind.
    """
    try:
        missing = [place for place in (directory, *directory.parents) if not place.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undone:
            for place in reversed(missing):
                undone.callback(place.rmdir)
            undone.enter_context(TemporaryFile(dir=directory))
    except (OSError, ValueError) as reason:
        rule = "a folder, or a new name for one, where files can be written"
        raise InvalidValue("folder", rule, str(directory), remedy=str(reason)) from reason


def require_new(directory: Path) -> None:
    """Refuse to overwrite anything, and a place where nothing can be written."""
    with _refuse_failures(directory):
        taken = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    if taken:
        raise InvalidValue("directory", "new or empty", str(directory), remedy="choose another, or remove it first")
    require_writable(directory.parent)


def require_new_file(file: Path, suffix: str, force: bool) -> None:
    """Refuse a name that ends otherwise, a folder, and a file that is there; `force` overwrites that."""
    with _refuse_failures(file):
        present = file.exists()
        if file.suffix != suffix or file.is_dir():
            raise InvalidValue("out", f"a file whose name ends with {suffix}", str(file))
    if present and not force:
        raise InvalidValue("out", "new", str(file), remedy="choose another name; --force (force=True) overwrites it")


def write_whole(path: Path, text: str) -> None:
    """Write a file as a whole, or leave the old one unchanged."""
    _require_a_name(path)
    with replace_files(path.parent) as place:
        write_text(place / path.name, text)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8; names of files in a text may hold bytes that are not."""
    path.write_text(text, "utf-8", "backslashreplace")


@contextmanager
def replace_files(folder: Path, failures: Failures = (OSError,)) -> Iterator[Path]:
    """A temporary folder whose files move into place when all are whole; until then nothing changes."""
    with _refuse_failures(folder, failures), _part_in(folder) as place:
        yield place
        _open_to_others(place)
        _store(place)
        for path in sorted(place.iterdir()):
            path.replace(folder / path.name)
        _store_names(folder)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes its place when it is whole; what is there stays until then."""
    with replace_files(path.parent) as place, (place / path.name).open("wb") as file:
        yield file


@contextmanager
def make_folder(directory: Path, failures: Failures = (OSError,)) -> Iterator[Path]:
    """A temporary folder that becomes `directory` on success and is removed on failure."""
    require_new(directory)
    with _refuse_failures(directory, failures), _part_in(directory.parent) as place:
        yield place
        _open_to_others(place)
        _store(place)
        if directory.exists():
            directory.rmdir()
        place.rename(directory)
        _store_names(directory.parent)


@contextmanager
def _refuse_failures(place: Path, failures: Failures = (OSError,)) -> Iterator[None]:
    """Report failures to write in one line."""
    _require_a_name(place)
    try:
        yield
    except RopewalkError:
        raise
    except failures as reason:
        remedy = "make room, or choose another place; nothing half-written was left"
        raise InvalidValue(str(place), "written whole", str(reason), remedy=remedy) from reason


def _require_a_name(place: Path) -> None:
    """Refuse names that the operating system does not allow."""
    try:
        place.stat()
    except ValueError as reason:
        raise InvalidValue("name", "one that a file can have", str(place), remedy=str(reason)) from reason
    except OSError:  # writing will report it
        return


@contextmanager
def _part_in(parent: Path) -> Iterator[Path]:
    """A new temporary folder, removed afterwards; what killed writers left here is removed first."""
    parent.mkdir(parents=True, exist_ok=True)
    _remove_the_abandoned(parent)
    place, lock = _claim(parent)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _claim(parent: Path) -> tuple[Path, int | None]:
    """A new folder with its lock, or without one where the file system has no locks."""
    while True:
        place = parent / LEFT.format(machine=_machine(), mark=secrets.token_hex(6))
        place.mkdir()
        try:
            lock = lock_folder(place)
        except (BlockingIOError, FileNotFoundError):  # another writer thought it abandoned before it was locked
            continue
        if lock is None or place.exists():
            return place, lock
        os.close(lock)


def _remove_the_abandoned(parent: Path) -> None:
    """Remove what dead writers of this machine left; a locked folder belongs to a live one."""
    for left in parent.glob(LEFT.format(machine=_machine(), mark="*")):
        with suppress(OSError):
            lock = lock_folder(left)
            if lock is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)


def lock_folder(place: Path) -> int | None:
    """A lock that ends with this process; None without lock support; BlockingIOError where another process has it."""
    if fcntl is None:
        return None
    opened = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as reason:
        os.close(opened)
        if isinstance(reason, BlockingIOError):
            raise
        return None
    return opened


@contextmanager
def keep_out_others(folder: Path, sentence: str, remedy: str) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if need be; refused where another one has it.

    Blocks within each other may hold the same folder. One that was made and is still empty is removed after the block.
    """
    with _refuse_failures(folder):
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
    if place in _HELD:
        yield
        return
    try:
        lock = lock_folder(place)
    except BlockingIOError:
        raise Conflict.because("folder", sentence, remedy=remedy) from None
    _HELD.add(place)
    try:
        yield
    finally:
        _HELD.discard(place)
        if made:
            with suppress(OSError):
                place.rmdir()
        if lock is not None:
            os.close(lock)


def _machine() -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname()[:64])


def _open_to_others(place: Path) -> None:
    """Give files that a library made private the permissions of the folder, as the umask has them."""
    readable = place.stat().st_mode & 0o666
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode | readable)


def _store(place: Path) -> None:
    """Have everything in a folder on the disk before it moves: a name may outlive a power cut that its bytes do not."""
    for path in place.rglob("*"):
        if path.is_symlink():
            continue
        if path.is_dir():
            _store_names(path)
        else:
            _sync(path, os.O_RDONLY if fcntl else os.O_RDWR)  # Windows flushes what may be written only
    _store_names(place)


def _store_names(folder: Path) -> None:
    """Have the names in a folder on the disk, where the system can do that for folders."""
    with suppress(OSError):
        _sync(folder, os.O_RDONLY)


def _sync(path: Path, how: int) -> None:
    opened = os.open(path, how)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
