"""Sessions: texts that stay after an answer, so that the next one continues them.

A session that rests makes room for requests that wait: the longest unused goes first, to the disk where there is a
folder for it, else for good.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ropewalk.errors import Conflict, Unreadable
from ropewalk.files import read_json, why
from ropewalk.folders import locked, replacing
from ropewalk.serve.generation.model.served_model import ServedModel
from ropewalk.serve.generation.request import QueueFull, SessionBusy, SessionGone, Usage
from ropewalk.serve.generation.sequence import Sequence
from ropewalk.serve.session_files import KEYS, session_file

DAMAGED = (OSError, SafetensorError, KeyError, TypeError, ValueError)  # what a file that is not whole raises
MakeRoom = Callable[[str, int], bool]  # of an extension, for so many pages; whether there is room now
REMEMBERED = 10_000  # names of evicted sessions


class StoredSession:
    """A text under an extension, and whether an answer is being written to it."""

    def __init__(self, name: str, extension: str, sequence: Sequence) -> None:
        self.name, self.extension, self.sequence = name, extension, sequence
        self.busy = False


class Sessions:
    """All sessions; the longest unused comes first."""

    def __init__(self, model: ServedModel, folder: Path | None) -> None:
        self._model, self._folder = model, folder
        self._resting: OrderedDict[str, StoredSession] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._lock = None if folder is None else _locked(folder)

    def __len__(self) -> int:
        return len(self._resting)

    def usage(self, name: str) -> Usage | None:
        """How much a session has read, in memory or on disk; None without one."""
        session, path = self._resting.get(name), self._path(name)
        if session is not None:
            one = session.sequence
            return Usage(0, 0, 0, one.total, one.forgotten)
        if name in self._gone:
            raise SessionGone(name)
        if path is None or not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                about = read_json(file.metadata()["session"], "session")
                return Usage(0, 0, 0, about["length"] + len(about["unread"]), about["forgotten"])
        except DAMAGED as wrong:
            raise _unreadable(name, why(wrong)) from wrong

    def enter(self, name: str, extension: str, new: Sequence, make_room: MakeRoom) -> StoredSession:
        """The session to continue, from memory or disk, or a new one."""
        session = self._resting.get(name)
        if session is None and name in self._gone:
            raise SessionGone(name)
        if session is None:
            one = self._restored(name, extension, new, make_room) or new
            session = self._resting[name] = StoredSession(name, extension, one)
        if session.busy:
            raise SessionBusy(name)
        if session.extension != extension:
            sentence = f"session {name!r} is under {session.extension}, and cannot continue under {extension}"
            raise Conflict.because("session", sentence, remedy="begin another session")
        session.busy = True
        self._resting.move_to_end(name)
        return session

    def leave(self, name: str) -> None:
        """The answer is written: the session rests. One that has no text, since its first request was refused, ends."""
        session = self._resting[name]
        session.busy = False
        if not session.sequence.total:
            del self._resting[name]

    def drop(self, name: str) -> bool:
        """End a session, in memory and on disk; whether there was one."""
        session = self._resting.get(name)
        if session is not None and session.busy:
            raise SessionBusy(name)
        known = session is not None or name in self._gone
        self._gone.pop(name, None)
        if session is not None:
            self._resting.pop(name).sequence.close()
        path = self._path(name)
        if path is not None and path.exists():
            path.unlink()
            known = True
        return known

    def evict(self) -> bool:
        """Take the longest unused session out of memory; whether there was one."""
        session = next((one for one in self._resting.values() if not one.busy and one.sequence.length), None)
        if session is None:
            return False
        self._save(session)
        del self._resting[session.name]
        session.sequence.close()
        if self._folder is None:
            self._gone[session.name] = None
            if len(self._gone) > REMEMBERED:
                self._gone.popitem(last=False)
        return True

    def close(self) -> None:
        """Write every session to disk, where there is a folder, and leave the folder to others."""
        for session in self._resting.values():
            self._save(session)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None else session_file(self._folder, name, KEYS)

    def _save(self, session: StoredSession) -> None:
        path = self._path(session.name)
        if path is None:
            return
        one = session.sequence
        about = {"name": session.name, "extension": session.extension, "unread": one.unread, "length": one.length}
        about |= {"forgotten": one.forgotten, "model": self._model.fingerprint, "places": one.places}
        pages = one.held_pages
        tensors = {
            str(layer): whole[pages].contiguous() for layer, whole in enumerate(self._model.pages_of(session.extension))
        }
        about["checksums"] = [checksum(tensor) for tensor in tensors.values()]
        with replacing(path.parent, (OSError, SafetensorError)) as place:
            save_file(tensors, place / path.name, {"session": json.dumps(about)})

    def _restored(self, name: str, extension: str, new: Sequence, make_room: MakeRoom) -> Sequence | None:
        """The sequence that a file holds; None without a file."""
        path = self._path(name)
        if path is None or not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                about: dict[str, Any] = read_json(file.metadata()["session"], "session")
                self._require_alike(about, name, extension)
                if not make_room(extension, len(about["places"])):
                    raise QueueFull(f"no memory is left for session {name!r} beside the answers that are being written")
                pages = new.restore(about["length"], about["places"], about["unread"])
                for layer, whole in enumerate(self._model.pages_of(extension)):
                    tensor = file.get_tensor(str(layer))
                    if checksum(tensor) != about["checksums"][layer]:
                        new.close()
                        raise _unreadable(name, "its numbers are not those that were saved")
                    whole[pages] = tensor.to(whole.device)
        except (Conflict, QueueFull, Unreadable):
            raise
        except DAMAGED as wrong:
            new.close()
            raise _unreadable(name, why(wrong)) from wrong
        self._model.forget_tables(extension, torch.tensor(pages))
        return new

    def _require_alike(self, about: dict[str, Any], name: str, extension: str) -> None:
        if about["model"] != self._model.fingerprint or about["extension"] != extension or about["name"] != name:
            sentence = f"session {name!r} was saved by another model, or under {about['extension']}"
            raise Conflict.because("session", sentence, remedy="begin another session")


def _locked(folder: Path) -> int | None:
    """Make the folder, and keep other servers out of it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return locked(folder)
    except BlockingIOError:
        sentence = f"another server keeps its sessions in {folder}"
        raise Conflict.because("sessions", sentence, remedy="give each server a folder of its own") from None


def checksum(tensor: torch.Tensor) -> int:
    """Of a tensor's bytes."""
    numbers: Any = tensor.contiguous().cpu().flatten().view(torch.uint8).numpy()
    return zlib.crc32(numbers)


def _unreadable(name: str, reason: str) -> Unreadable:
    sentence = f"the file of session {name!r} cannot be read: {reason}"
    return Unreadable.because("session", sentence, remedy="delete the session, and begin it again")
