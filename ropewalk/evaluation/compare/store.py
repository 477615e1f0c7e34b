"""Where finished cells are kept: one SQLite file, written cell by cell, read by any number of processes.

The file says which version of this layout it has, and has a mark of each result: one that was changed since is
refused. A cell that failed is noted, and tried again by the next run.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ropewalk.errors import RopewalkError, Unreadable
from ropewalk.files import why
from ropewalk.folders import refusing_full
from ropewalk.spec import Json

PATIENCE = 60.0  # seconds to wait for another process that is writing
VERSION = 2  # of the file's layout
TABLES = (
    "create table if not exists cells (key text primary key, result text not null, mark text not null)",
    "create table if not exists failures (key text primary key, why text not null)",
)


class Store:
    """Results by key. A result that is in it was finished; nothing half-done ever is."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._begun = False
        if self._is_there():  # else the first result makes it
            self._begin()

    def _begin(self) -> None:
        """Make the tables in a file that is new; refuse one that was laid out otherwise."""
        with self._connected() as file:
            file.execute("begin immediate")  # others that begin at the same time wait
            found = int(file.execute("pragma user_version").fetchone()[0])
            if found != VERSION and file.execute("select 1 from sqlite_master").fetchone():
                remedy = "measure into another folder, or read it with the version of Ropewalk that wrote it"
                raise Unreadable("store", f"of version {VERSION}", f"version {found} in {self.path}", remedy=remedy)
            for each in TABLES:
                file.execute(each)
            file.execute(f"pragma user_version = {VERSION}")
        self._begun = True

    def get(self, key: str) -> Json | None:
        """The result of a cell, or nothing where it is still to do."""
        with self._open() as file:
            row = file.execute("select result, mark from cells where key = ?", (key,)).fetchone()
        if row and row[1] != _mark(key, str(row[0])):
            remedy = "measure into another folder, or remove this store"
            raise Unreadable("store", "as it was written", f"a changed result in {self.path}", remedy=remedy)
        return json.loads(row[0]) if row else None

    def put(self, key: str, result: Json) -> None:
        """Keep a result; what came first stays."""
        with self._open() as file:
            written = json.dumps(result)
            file.execute("insert or ignore into cells values (?, ?, ?)", (key, written, _mark(key, written)))
            file.execute("delete from failures where key = ?", (key,))

    def fail(self, key: str, why: str) -> None:
        """Note a cell that could not be measured; it is still to do."""
        with self._open() as file:
            file.execute("insert or replace into failures values (?, ?)", (key, why))

    def failure(self, key: str) -> str | None:
        """Why a cell could not be measured when it was last tried, or nothing."""
        with self._open() as file:
            row = file.execute("select why from failures where key = ?", (key,)).fetchone()
        return str(row[0]) if row else None

    def keys(self) -> set[str]:
        """Of every finished cell."""
        if not self._is_there():
            return set()
        with self._open() as file:
            return {row[0] for row in file.execute("select key from cells")}

    def _is_there(self) -> bool:
        with self._said(), suppress(FileNotFoundError):
            return bool(self.path.stat())
        return False

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file, with its tables."""
        if not self._begun:
            self._begin()
        with self._connected() as file:
            yield file

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own each time: processes and threads then share nothing but the file."""
        with self._said():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as file, file:
                yield file

    @contextmanager
    def _said(self) -> Iterator[None]:
        """What is wrong with the file, or with its name; a disk without room is another matter."""
        try:
            with refusing_full(self.path, "make room and start again: what was measured is kept"):
                yield
        except RopewalkError:
            raise
        except (sqlite3.Error, OSError, ValueError) as wrong:
            raise Unreadable("store", "a file of results", str(self.path), remedy=why(wrong)) from wrong


def _mark(key: str, result: str) -> str:
    """Of a result under its key; whoever edits numbers knows that they are others."""
    return hashlib.sha256(f"{key} {result}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
