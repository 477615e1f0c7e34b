"""The process: binds first, loads beside that, serves, and shuts down in order."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import uvicorn

from ropewalk.errors import InvalidValue
from ropewalk.serve.app import application
from ropewalk.serve.service import ApiSettings, ServedModels, Service

BACKLOG = 2048
TICK = 0.05  # seconds between two looks at what is still running
LAST_WRITES = 2  # seconds for what is written already to be read


def url_of(host: str, port: int) -> str:
    """The address of a server, as a client writes it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as reason:
        detail = f"{type(reason).__name__}: {reason}"
        raise InvalidValue("--host and --port", "free to be bound", f"{host}:{port}", remedy=detail) from reason


class HttpServer:
    """One server in one process."""

    def __init__(
        self,
        settings: ApiSettings,
        listening: socket.socket,
        load: Callable[[], ServedModels],
        *,
        drain: float,
        ready: Callable[[ServedModels, str], None] = lambda models, url: None,
    ) -> None:
        self.service, self._listening, self._load = Service(settings), listening, load
        self._drain, self._ready = drain, ready
        self.url = url_of(*listening.getsockname()[:2])
        self.loads = False  # whether the engine is being loaded
        self.interrupted = False  # by Ctrl-C
        logging.getLogger("uvicorn.access").disabled = True  # paths have names of sessions
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(self.service),
                http="h11",
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=LAST_WRITES,
            )
        )
        # Signals are ours: uvicorn would close the socket at once, and end the process by the signal.
        self._server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]

    async def serve(self) -> None:
        """Serve until a signal, then finish what is running. A failure to load is raised."""
        self._stop = asyncio.Event()
        with self._handle_signals():
            serving: asyncio.Future[None] = asyncio.create_task(self._server.serve(sockets=[self._listening]))
            loading, self.loads = asyncio.wrap_future(_load_in_thread(self._load)), True
            stopping = asyncio.create_task(self._stop.wait())
            running: set[asyncio.Future[Any]] = {loading, stopping, serving}
            try:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    self.loads = False
                    self.service.begin(loading.result())
                    self._ready(loading.result(), self.url)
                    await asyncio.wait(running - {loading}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                loading.cancel()
                await self._shut_down()
                await serving

    def stop(self) -> None:
        """Shut down; a second call does not wait for what is running."""
        if self._stop.is_set():
            self._drain = 0
        self.service.phase = "draining"
        self._stop.set()

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """Signals end the server in order, where it runs in the main thread."""

        def stop(number: int) -> None:
            self.interrupted = number == signal.SIGINT
            self.stop()

        loop = asyncio.get_running_loop()
        with ExitStack() as undo:
            with suppress(NotImplementedError, RuntimeError):  # on Windows, and outside the main thread
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.add_signal_handler(number, stop, number)
                    undo.callback(loop.remove_signal_handler, number)
            yield

    async def _shut_down(self) -> None:
        """Refuse new requests, wait for the running ones, end the engine, and then the server."""
        self.service.phase = "draining"
        end = time.monotonic() + self._drain
        while self.service.in_flight and time.monotonic() < end and self._drain:
            await asyncio.sleep(TICK)
        if self.service.models is not None:
            await self.service.models.engine.close(drain=max(end - time.monotonic(), 0) if self._drain else 0)
            self.service.models.tokenizer.close()
        self._server.should_exit = True


def _load_in_thread(load: Callable[[], ServedModels]) -> Future[ServedModels]:
    """The result of a function in a thread that does not keep the process alive."""
    result: Future[ServedModels] = Future()

    def work() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(load())
        except BaseException as reason:
            result.set_exception(reason)

    threading.Thread(target=work, name="loading", daemon=True).start()
    return result
