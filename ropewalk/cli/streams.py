"""The command's streams and width, whatever it was started with: closed streams, an ASCII terminal, COLUMNS=0."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

NARROWEST = 20  # columns: in fewer, tables are cut, and in none nothing is printed


def make_usable() -> None:
    """Give closed streams somewhere to write, so that the work is done and no file gets their numbers; write out
    characters that a stream cannot show; leave a width that nobody can read in to the terminal."""
    for number in range(3):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdecimal() or int(columns) < NARROWEST:
        os.environ.pop("COLUMNS", None)
