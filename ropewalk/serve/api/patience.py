"""How long a connection may take, to send its headers and to read what is written to it, and what it may not send."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ropewalk.serve.api.responses.errors import Refusal

LONGEST_HEAD = 64 * 2**10  # bytes of a request line with its headers, as uvicorn has it


def patient(header_seconds: float, write_seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol with limits of time, and with its own refusals in OpenAI's shape."""

    class Patient(_Patient):
        headers_within, reads_within = header_seconds, write_seconds

    return Patient


class _OneLength(h11.Connection):
    """Refuses two statements of a body's length: a proxy before us may believe the other one."""

    refused = ""  # why

    def next_event(self) -> Any:
        """The next part of a request."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                self.refused = "a request has either Content-Length or Transfer-Encoding, not both"
                raise h11.RemoteProtocolError(self.refused)
        return event


class _Patient(H11Protocol):
    headers_within, reads_within = 0.0, 0.0
    _heading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    conn: _OneLength

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False  # paths have names of sessions
        self.conn = _OneLength(h11.SERVER, LONGEST_HEAD)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The headers are waited for."""
        super().connection_made(transport)
        self._heading = self.loop.call_later(self.headers_within, self._abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        self._stop_heading()
        self._stop_writing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """The headers may be there now."""
        super().handle_events()
        answering = self.cycle is not None and not self.cycle.response_complete
        idle = self.timeout_keep_alive_task is not None
        if answering or idle or self.transport.is_closing():
            self._stop_heading()
        elif self._heading is None:
            self._heading = self.loop.call_later(self.headers_within, self._abort)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._writing = self._writing or self.loop.call_later(self.reads_within, self._abort)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._stop_writing()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what is no HTTP."""
        sentence = self.conn.refused or f"{msg.rstrip('.')}; send HTTP/1.1"
        body = json.dumps(Refusal(400, sentence, code="http").body()).encode()
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]
        events: list[Any] = [h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()]
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _abort(self) -> None:
        self.transport.abort()

    def _stop_heading(self) -> None:
        if self._heading is not None:
            self._heading.cancel()
            self._heading = None

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
