"""The files of a model's folder: what a link brings in from elsewhere is not copied into what is written.

A folder from somebody else may hold a link to any file of this machine, and a copy of it would be given away with the
model. A snapshot in the hub's cache consists of links to its blobs, which belong to it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple, NoReturn

from huggingface_hub import try_to_load_from_cache
from transformers.utils.hub import CHAT_TEMPLATE_DIR

from ropewalk.errors import Unreadable
from ropewalk.files import holds, why

REPOSITORY, SNAPSHOTS, BLOBS = "models--", "snapshots", "blobs"  # in the hub's cache
# Read as numbers and written as numbers, so that nothing else can come out of them; and the lists of their parts.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json")
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
BY_FOLDER = os.open in os.supports_dir_fd  # Windows cannot open a file in an open folder


class OwnFile(NamedTuple):
    """Where a file is after all links, and the folder that it belongs to."""

    home: Path
    real: Path


def require_own_files(*names: str | None) -> None:
    """Refuse models whose texts (configs, tokenizers, templates, papers) are links to places outside their folders.

    `names` are folders, or names on the hub. Weights may be links: many people keep them on another disk.
    """
    for folder in {folder for name in names if name and (folder := folder_of(name))}:
        for path in _texts(folder):
            if path.is_symlink() and _own(path) is None:
                _refuse(path)


def sources_of(host: Any, tokenizer: Any = None) -> tuple[str | None, str | None]:
    """Where a model and its tokenizer were loaded from."""
    return getattr(host, "name_or_path", None), getattr(tokenizer, "name_or_path", None)


def folder_of(name: str) -> Path | None:
    """The folder that a model came from: a local one, or the hub's cache; nothing is downloaded."""
    if holds(Path(name).is_dir):
        return Path(name)
    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # not a name on the hub
        return None
    return Path(config).parent if isinstance(config, str) else None


def copy_own(path: Path, into: Path) -> None:
    """Copy a file of a model's folder, opened in such a way that no link put in its place meanwhile is followed."""
    file = _own(path)
    if file is None:
        _refuse(path)
    try:
        with _open(file) as source, into.open("xb") as copy:
            shutil.copyfileobj(source, copy)
    except OSError as wrong:
        if wrong.filename == str(into):
            raise
        raise Unreadable("model", "one whose files can be copied", str(path), remedy=why(wrong)) from wrong


def _texts(folder: Path) -> Iterator[Path]:
    """What of a folder is written again with the model, by transformers or by us. Other folders in it are not read."""
    for path in sorted(folder.iterdir()):
        if path.name == CHAT_TEMPLATE_DIR:
            yield path
            yield from sorted(path.iterdir()) if _own(path) and path.is_dir() else ()
        elif not path.is_dir() and not path.name.endswith(WEIGHTS):
            yield path


def _own(path: Path) -> OwnFile | None:
    """The file, if it belongs to the folder that it is in; None where its links lead elsewhere."""
    real = Path(os.path.realpath(path))
    return next((OwnFile(home, real) for home in _homes(path.parent.resolve()) if real.is_relative_to(home)), None)


def _homes(folder: Path) -> Iterator[Path]:
    """The folder itself, or of a snapshot its repository in the hub's cache, and the cache's common blobs."""
    if folder.name == CHAT_TEMPLATE_DIR:
        folder = folder.parent
    yield folder
    repository = folder.parent.parent
    if folder.parent.name == SNAPSHOTS and repository.name.startswith(REPOSITORY):
        yield repository
        yield repository.parent / BLOBS


def _refuse(path: Path) -> NoReturn:
    sentence = f"{path} is a link to {os.path.realpath(path)}, outside the model's folder, and is not copied from there"
    raise Unreadable.because("model", sentence, remedy="put the file itself in its place, or remove the link")


@contextmanager
def _open(file: OwnFile) -> Iterator[Any]:
    """A plain file, opened folder by folder. A pipe or a device is not opened: that may wait, or do something."""
    with ExitStack() as opened:
        *folders, name = (str(file.home), *file.real.relative_to(file.home).parts) if BY_FOLDER else (str(file.real),)
        at: dict[str, int] = {}
        for folder in folders:
            at["dir_fd"] = os.open(folder, os.O_RDONLY | NO_LINK, **at)
            opened.callback(os.close, at["dir_fd"])
        _require_plain(os.stat(name, follow_symlinks=False, **at), file.real)  # noqa: PTH116
        plain = opened.enter_context(os.fdopen(os.open(name, os.O_RDONLY | NO_LINK, **at), "rb"))
        _require_plain(os.fstat(plain.fileno()), file.real)
        yield plain


def _require_plain(status: os.stat_result, path: Path) -> None:
    if not S_ISREG(status.st_mode):
        raise Unreadable.because("model", f"{path} is not a plain file, and is not copied", remedy="remove it")
