"""Where finished cells are kept: one SQLite file, written cell by cell, read by any number of processes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ropewalk.errors import Unreadable
from ropewalk.spec import Json

PATIENCE = 60.0  # seconds to wait for another process that is writing


class Store:
    """Results by key. A result that is in it was finished; nothing half-done ever is."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as file:
            file.execute("create table if not exists cells (key text primary key, result text not null)")

    def get(self, key: str) -> Json | None:
        """The result of a cell, or nothing where it is still to do."""
        with self._open() as file:
            row = file.execute("select result from cells where key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, key: str, result: Json) -> None:
        """Keep a result; what came first stays."""
        with self._open() as file:
            file.execute("insert or ignore into cells values (?, ?)", (key, json.dumps(result)))

    def keys(self) -> set[str]:
        """Of every finished cell."""
        with self._open() as file:
            return {row[0] for row in file.execute("select key from cells")}

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own each time: processes and threads then share nothing but the file."""
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as file, file:
                yield file
        except sqlite3.DatabaseError as wrong:
            raise Unreadable("store", "a file of results", str(self.path), remedy=str(wrong)) from wrong
