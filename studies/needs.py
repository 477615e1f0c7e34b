"""What a command of the studies needs besides Ropewalk: packages of an extra."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ropewalk.cli.exit_status import REFUSED
from ropewalk.errors import not_installed


@contextmanager
def one_line_if_missing() -> Iterator[None]:
    """Imports within end the command with the line that says what to install."""
    try:
        yield
    except ModuleNotFoundError as missing:
        print(f"studies: {not_installed(missing)}", file=sys.stderr)
        sys.exit(REFUSED)
