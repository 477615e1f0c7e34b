"""Where finished cells are kept: one SQLite file, written cell by cell, read by any number of processes.

The file says which version of this layout it has. A cell that failed is marked, and tried again by the next run.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ropewalk.errors import Unreadable
from ropewalk.spec import Json

PATIENCE = 60.0  # seconds to wait for another process that is writing
VERSION = 1  # of the file's layout
TABLES = (
    "create table if not exists cells (key text primary key, result text not null)",
    "create table if not exists failures (key text primary key, why text not null)",
)


class Store:
    """Results by key. A result that is in it was finished; nothing half-done ever is."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._begun = False
        if self.path.exists():  # else the first result makes it
            self._begin()

    def _begin(self) -> None:
        """Make the tables in a file that is new; refuse one that was laid out otherwise."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
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
            row = file.execute("select result from cells where key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, key: str, result: Json) -> None:
        """Keep a result; what came first stays."""
        with self._open() as file:
            file.execute("insert or ignore into cells values (?, ?)", (key, json.dumps(result)))
            file.execute("delete from failures where key = ?", (key,))

    def fail(self, key: str, why: str) -> None:
        """Mark a cell that could not be measured; it is still to do."""
        with self._open() as file:
            file.execute("insert or replace into failures values (?, ?)", (key, why))

    def failure(self, key: str) -> str | None:
        """Why a cell could not be measured when it was last tried, or nothing."""
        with self._open() as file:
            row = file.execute("select why from failures where key = ?", (key,)).fetchone()
        return str(row[0]) if row else None

    def keys(self) -> set[str]:
        """Of every finished cell."""
        if not self.path.exists():
            return set()
        with self._open() as file:
            return {row[0] for row in file.execute("select key from cells")}

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
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as file, file:
                yield file
        except sqlite3.DatabaseError as wrong:
            raise Unreadable("store", "a file of results", str(self.path), remedy=str(wrong)) from wrong
