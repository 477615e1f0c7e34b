"""Long texts to token ids in another process, which is ended where nobody waits any more.

A tokenizer takes a microsecond or more for each character and cannot be interrupted: in a thread it would go on for a
client that has left. The process has the same tokenizer, and so gives the same tokens.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, cast

HEAD = struct.Struct("<QQ?")  # of a request: bytes of the text, tokens at most, whether special tokens begin it
COUNT = struct.Struct("<q")
TOO_MANY = -1  # instead of a count
PIECE = 50_000  # characters that are counted at once
DENSE = 8  # characters of a token: where a text has more, it may be far too long, and is counted first
BORDERS = 2  # times the limit: pieces have a few tokens more than the whole
LARGE = 10**6  # characters of a text after which the process ends, and its memory with it


class LongTexts:
    """Reads one long text at a time; `stop` ends the reading from another thread."""

    def __init__(self, tokenizer: Any) -> None:
        self._saved: bytes = tokenizer.to_str().encode()
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: str | None = None
        self._changing = threading.Lock()  # what is being read: `stop` must not end the reading of the next text

    def ids(self, text: str, begins: bool, most: int) -> tuple[int, ...] | None:
        """The tokens of a text, with the special tokens that begin one; None where they are far more than `most`."""
        data = text.encode()
        self._read(text)
        try:
            ids = self._asked(HEAD.pack(len(data), most, begins) + data)
        except BaseException:
            self.close()
            raise
        finally:
            self._read(None)
        if len(text) > LARGE:
            self.close()
        return ids

    def stop(self, text: str) -> None:
        """End the reading of a text, if it is being read."""
        with self._changing:
            if self._reading is text and self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError), process:  # what was not yet written to it
                pass

    def _read(self, text: str | None) -> None:
        with self._changing:
            self._reading = text

    def _asked(self, request: bytes) -> tuple[int, ...] | None:
        if self._process is None:
            command = [sys.executable, "-m", __name__]
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = subprocess.Popen(command, **pipes, start_new_session=True)  # Ctrl-C is the server's
            request = COUNT.pack(len(self._saved)) + self._saved + request
        writing, reading = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        writing.write(request)
        writing.flush()
        (count,) = COUNT.unpack(reading.read(COUNT.size))
        return None if count == TOO_MANY else tuple(array("I", reading.read(4 * count)))


def serve(reading: IO[bytes], writing: IO[bytes]) -> None:
    """The other process: a tokenizer, and then texts until nobody writes any."""
    from tokenizers import Tokenizer

    (size,) = COUNT.unpack(reading.read(COUNT.size))
    tokenizer = Tokenizer.from_str(reading.read(size).decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    while head := reading.read(HEAD.size):
        size, most, begins = HEAD.unpack(head)
        ids = tokens(tokenizer, reading.read(size).decode(), begins, most)
        writing.write(COUNT.pack(TOO_MANY if ids is None else len(ids)) + array("I", ids or ()).tobytes())
        writing.flush()


def tokens(tokenizer: Any, text: str, begins: bool, most: int) -> Sequence[int] | None:
    """The tokens of a text; None as soon as its pieces have far more than `most`."""
    count = 0
    for first in range(0, len(text) if len(text) > DENSE * most else 0, PIECE):
        count += len(tokenizer.encode(text[first : first + PIECE], add_special_tokens=False).ids)
        if count > BORDERS * most:
            return None
    ids: Sequence[int] = tokenizer.encode(text, add_special_tokens=begins).ids
    return ids


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
