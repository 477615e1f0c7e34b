"""The `ropewalk` command: errors and Ctrl-C as one line. Nothing is imported here before Ctrl-C is heard."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from ropewalk.cli.exit_status import REFUSED, STOPPED
from ropewalk.errors import RopewalkError, is_out_of_memory, not_installed

IMPORTS = "<frozen importlib._bootstrap>"  # the file of Python's own importing
SAID = "ropewalk: stopped\n"


def main() -> None:
    """The command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        status = run()
    except KeyboardInterrupt:
        status = _stopped()
    sys.exit(status)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C: the end of the process while anything is imported, where libraries make other errors of it, or none.

    What is under way then is left as a process that is killed leaves it; everywhere else Python's own answer is raised.
    """
    each = frame
    while each is not None:
        if each.f_code.co_filename == IMPORTS:
            os.write(2, SAID.encode())
            os._exit(STOPPED)
        each = each.f_back
    signal.default_int_handler(number, frame)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a verb and give its exit status; what is refused is said in one line."""
    from ropewalk.cli.parser import MISUSE, app

    try:
        status = app(arguments, prog_name="ropewalk", standalone_mode=False)
    except RopewalkError as refused:
        return _refused(str(refused))
    except MISUSE as wrong:
        said = wrong.format_message()  # type: ignore[attr-defined]
        return _refused(_misuse(wrong, said)) if said else REFUSED  # called with nothing it has shown its help
    except ModuleNotFoundError as missing:
        return _refused(str(not_installed(missing)))
    except (OSError, UnicodeDecodeError) as unreadable:
        return _refused(str(unreadable))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return _refused("memory must be enough for the model and its cache; a reach that forgets needs less")
    return _stopped() if status == STOPPED else int(status or 0)


def _misuse(wrong: Any, said: str) -> str:
    """What the parser says, and where to look."""
    context = getattr(wrong, "ctx", None)
    path = context.command_path if context else "ropewalk"
    return f"{said.rstrip('.')}; {path} --help says what there is"


def _refused(why: str) -> int:
    print(f"ropewalk: {' '.join(why.split())}", file=sys.stderr)
    return REFUSED


def _stopped() -> int:
    sys.stderr.write(SAID)
    return STOPPED
