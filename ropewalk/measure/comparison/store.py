"""The store of measured cells, and what it was made with."""

from __future__ import annotations

import hashlib
import json
import platform
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from ropewalk.errors import DoesNotFit, RopewalkError, Unreadable
from ropewalk.files import why
from ropewalk.folders import refuse_full_disk
from ropewalk.measure.material.measured_by import PACKAGE, sources_of
from ropewalk.methods.spec import Json

# What is installed on a node: numbers of several nodes belong together only if all run the same code.


PACKAGES = ("ropewalk", "torch", "transformers", "tokenizers")
SOURCES = "ropewalk's sources"


@lru_cache
def installed_versions() -> dict[str, str]:
    """Versions, and a hash of Ropewalk's own sources, which an editable install may have changed."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: version(name) for name in PACKAGES}, SOURCES: sources_of(PACKAGE)}


def require_same(driver: Mapping[str, str]) -> None:
    """Refuse a node on which anything differs from the driver."""
    here = installed_versions()
    for name, wanted in driver.items():
        if here.get(name) != wanted:
            rule = f"{wanted}, as on the driver"
            remedy = "install the same packages on all nodes"
            raise DoesNotFit(f"{name} on node {socket.gethostname()}", rule, here.get(name), remedy=remedy)


def provenance(*more: str) -> Json:
    """When, where and with which packages and sources something was measured; `more` names further packages."""
    packages = ("ropewalk", "torch", "transformers", "tokenizers", *more)
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in packages},
        "sources": installed_versions()[SOURCES],
    }


# The store of finished cells: one SQLite file, written cell by cell, shared by any number of processes.
#
# The file has the version of its layout, and a hash of each result: a result that was edited is refused. A cell that
# failed is noted, and tried again by the next run.


STORE_TIMEOUT = 60.0  # seconds to wait while another process writes
STORE_VERSION = 2  # of the layout
TABLES = (
    "create table if not exists cells (key text primary key, result text not null, mark text not null)",
    "create table if not exists failures (key text primary key, why text not null)",
)


class Store:
    """Results by key. Only finished results are in it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._begun = False
        if self._exists():  # else the first result makes it
            self._begin()

    def _begin(self) -> None:
        """Make the tables in a new file; refuse a file with another layout."""
        with self._connected() as file:
            file.execute("begin immediate")  # other processes that begin now wait
            version = int(file.execute("pragma user_version").fetchone()[0])
            if version != STORE_VERSION and file.execute("select 1 from sqlite_master").fetchone():
                remedy = "use another folder, or the version of Ropewalk that wrote it"
                raise Unreadable(
                    "store", f"of version {STORE_VERSION}", f"version {version} in {self.path}", remedy=remedy
                )
            for table in TABLES:
                file.execute(table)
            file.execute(f"pragma user_version = {STORE_VERSION}")
        self._begun = True

    def get(self, key: str) -> Json | None:
        """The result of a cell; None if it is not finished."""
        with self._open() as file:
            row = file.execute("select result, mark from cells where key = ?", (key,)).fetchone()
        if row and row[1] != _mark(key, str(row[0])):
            sentence = f"a result in {self.path} was changed after it was measured"
            raise Unreadable.because("store", sentence, remedy="use another folder, or remove this store")
        return json.loads(row[0]) if row else None

    def put(self, key: str, result: Json) -> None:
        """Store a result; the first one of a key stays."""
        with self._open() as file:
            text = json.dumps(result)
            file.execute("insert or ignore into cells values (?, ?, ?)", (key, text, _mark(key, text)))
            file.execute("delete from failures where key = ?", (key,))

    def fail(self, key: str, why: str) -> None:
        """Note a cell that could not be measured; it stays unfinished."""
        with self._open() as file:
            file.execute("insert or replace into failures values (?, ?)", (key, why))

    def failure(self, key: str) -> str | None:
        """Why a cell could not be measured when it was last tried; None if it was not tried or is finished."""
        with self._open() as file:
            row = file.execute("select why from failures where key = ?", (key,)).fetchone()
        return str(row[0]) if row else None

    def keys(self) -> set[str]:
        """The keys of all finished cells."""
        if not self._exists():
            return set()
        with self._open() as file:
            return {row[0] for row in file.execute("select key from cells")}

    def _exists(self) -> bool:
        with self._reporting(), suppress(FileNotFoundError):
            return bool(self.path.stat())
        return False

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file with its tables."""
        if not self._begun:
            self._begin()
        with self._connected() as file:
            yield file

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """A new connection each time, so that processes and threads share nothing but the file."""
        with self._reporting():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=STORE_TIMEOUT)) as file, file:
                yield file

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn errors of the file or its name into ours; a full disk has its own error."""
        try:
            with refuse_full_disk(self.path, "make room and run again: what was measured is kept"):
                yield
        except RopewalkError:
            raise
        except (sqlite3.Error, OSError, ValueError) as wrong:
            raise Unreadable("store", "a file of results", str(self.path), remedy=why(wrong)) from wrong


def _mark(key: str, result: str) -> str:
    """A hash of a result and its key, so that edited numbers are noticed."""
    return hashlib.sha256(f"{key} {result}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
