"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ropewalk.errors import InvalidValue, Unreadable


def require_plausible(model: str) -> None:
    """Refuse at once, and without a network, what is neither a folder with a model nor a name on the hub."""
    place = Path(model)
    if not place.is_dir() and (place.exists() or place.is_absolute() or model[:1] == "." or len(place.parts) != 2):
        raise Unreadable("model", "a folder that is there, or a name on the hub such as owner/name", model)
    if place.is_dir() and not (place / "config.json").is_file():
        raise Unreadable("model", "a folder with a config.json", model, remedy="save_pretrained writes one")


def require_writable(directory: Path) -> None:
    """Refuse, before the work whose results it is to hold, what can be no folder; nothing is left behind."""
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for place in missing:
            place.rmdir()
    except OSError as reason:
        raise InvalidValue("--out", "a folder, or a new name for one", str(directory), remedy=str(reason)) from reason


def require_new(directory: Path) -> None:
    """Refuse to write over what is there."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InvalidValue("directory", "new or empty", str(directory), remedy="choose another, or remove it first")


def write_whole(path: Path, text: str) -> None:
    """A file that is there with all of it, or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # several processes may write the same
    part.write_text(text)
    part.replace(path)


@contextmanager
def appearing(directory: Path, failures: tuple[type[Exception], ...] = (OSError,)) -> Iterator[Path]:
    """A folder beside the wanted one, which takes its place when all is well and is gone when not."""
    require_new(directory)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
        try:
            yield place
            if directory.exists():
                directory.rmdir()
            place.chmod(0o755)
            place.rename(directory)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    except failures as reason:
        remedy = "make room, or choose another place; nothing half-written was left"
        raise InvalidValue(str(directory), "written whole", str(reason), remedy=remedy) from reason
