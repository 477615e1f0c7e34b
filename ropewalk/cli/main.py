"""The `ropewalk` command: errors and Ctrl-C as one line. Little is imported here before Ctrl-C is handled."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from types import FrameType
from typing import Any

from ropewalk.cli.exit_status import READER_GONE, REFUSED, STOPPED
from ropewalk.errors import RopewalkError, is_out_of_memory, not_installed

IMPORTS = "<frozen importlib._bootstrap>"  # the file of Python's import system
MESSAGE = "ropewalk: stopped\n"
NARROWEST = 20  # columns: in fewer, tables are cut, and in none nothing is printed


def main() -> None:
    """The command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the parent process ignores it
        signal.signal(signal.SIGINT, interrupt)
    _make_streams_usable()
    try:
        status = run()
    except KeyboardInterrupt:
        status = _stopped()
    sys.exit(status)


def _make_streams_usable() -> None:
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


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C: end the process during an import, where libraries turn it into other errors, or swallow it.

    Nothing is cleaned up then, as if the process were killed; everywhere else KeyboardInterrupt is raised.
    """
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename == IMPORTS:
            os.write(2, MESSAGE.encode())
            os._exit(STOPPED)
        caller = caller.f_back
    signal.default_int_handler(number, frame)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit status; errors are one line."""
    from ropewalk.cli.parser import MISUSE, app

    try:
        status = app(arguments, prog_name="ropewalk", standalone_mode=False)
        sys.stdout.flush()
    except RopewalkError as refused:
        return _refused(str(refused))
    except MISUSE as wrong:
        message = wrong.format_message()  # type: ignore[attr-defined]
        if not message:  # without arguments the parser has printed its help
            return REFUSED
        return _refused(_misuse(wrong, message, sys.argv[1:] if arguments is None else arguments))
    except ModuleNotFoundError as missing:
        return _refused(str(not_installed(missing)))
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as ended:  # the parser and rich turn a broken pipe into this
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _reader_gone()
    except (OSError, UnicodeDecodeError) as unreadable:
        return _refused(str(unreadable))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return _refused("out of memory for the model and its cache; an extension that forgets needs less")
    return _stopped() if status == STOPPED else int(status or 0)


def _misuse(wrong: Any, message: str, typed: Sequence[str]) -> str:
    """The parser's message with the value, which it leaves out, and where to look."""
    context, option = getattr(wrong, "ctx", None), getattr(wrong, "param", None)
    path = context.command_path if context else "ropewalk"
    value = _value_of(getattr(option, "opts", []), typed) if message.startswith("Invalid value") else None
    got = "" if value is None else f", got {value!r}"
    return f"{message.rstrip('.')}{got}; see {path} --help"


def _value_of(names: Sequence[str], typed: Sequence[str]) -> str | None:
    """The last value of an option on the command line, written --name value or --name=value."""
    values = [
        value if equals else after
        for word, after in pairwise([*typed, ""])
        for name, equals, value in [word.partition("=")]
        if name in names
    ]
    return values[-1] if values else None


def _refused(why: str) -> int:
    print(f"ropewalk: {' '.join(why.split())}", file=sys.stderr)
    return REFUSED


def _reader_gone() -> int:
    """Nobody reads the output any more: what is left of it goes nowhere, at the end of Python too."""
    sys.stdout = None
    return READER_GONE


def _stopped() -> int:
    sys.stderr.write(MESSAGE)
    return STOPPED
