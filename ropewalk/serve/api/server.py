"""The process: binds first, loads beside that, serves, and shuts down in order."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import uvicorn

from ropewalk.errors import InvalidValue
from ropewalk.serve.api.app import application
from ropewalk.serve.api.patience import patient
from ropewalk.serve.api.service import ApiSettings, Loaded, Phase, Service

LOG = logging.getLogger("ropewalk.serve")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
BACKLOG = 2048
TICK = 0.05  # seconds between two looks at what is still running
LAST_WRITES = 2  # seconds for what is written already to be read


class Address(NamedTuple):
    """Where the server is bound."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """As a client writes it."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def bound(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as undo:
            listening = undo.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
            undo.pop_all()
    except (OSError, OverflowError) as reason:
        detail = f"{type(reason).__name__}: {reason}"
        raise InvalidValue("--host and --port", "free to be bound", f"{host}:{port}", remedy=detail) from reason
    return listening


class HttpServer:
    """One server in one process.

    HttpServer(ApiSettings(), bound("127.0.0.1", 0), load, drain=30).run()
    """

    def __init__(
        self,
        settings: ApiSettings,
        listening: socket.socket,
        load: Callable[[], Loaded],
        *,
        drain: float,
        ready: Callable[[Loaded, Address], None] = lambda loaded, address: None,
    ) -> None:
        self.service, self._listening, self._load = Service(settings), listening, load
        self._drain, self._ready = drain, ready
        self.address = Address(*listening.getsockname()[:2])
        self.loads = False  # whether the engine is being loaded
        self.interrupted = False  # by Ctrl-C
        self._server = _Quiet(_config(self.service))

    def run(self) -> None:
        """Serve until a signal; then finish what is running. A failure to load is raised."""
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """The same, in a loop that runs already."""
        self._stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        with _signalled(loop, self._signalled):
            serving: asyncio.Future[None] = asyncio.create_task(self._server.serve(sockets=[self._listening]))
            loading, self.loads = _in_thread(self._load), True
            stopping = asyncio.create_task(self._stop.wait())
            running: set[asyncio.Future[Any]] = {loading, stopping, serving}
            try:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if loading.done():
                    self.loads = False
                    self._begin(loading.result())
                    await asyncio.wait(running - {loading}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                await self._shut_down(serving)

    def stop(self) -> None:
        """Shut down; a second call does not wait for what is running."""
        if self._stop.is_set():
            self._drain = 0
        self.service.phase = Phase.DRAINING
        self._stop.set()

    def _signalled(self, number: int) -> None:
        self.interrupted = number == signal.SIGINT
        self.stop()

    def _begin(self, loaded: Loaded) -> None:
        self.service.begin(loaded)
        self._ready(loaded, self.address)

    async def _shut_down(self, serving: asyncio.Future[None]) -> None:
        """Refuse new requests, wait for the running ones, end the engine, and then the server."""
        self.service.phase = Phase.DRAINING
        waited = 0.0
        while self.service.in_flight and waited < self._drain:
            await asyncio.sleep(TICK)
            waited += TICK
        loaded = self.service.loaded()
        if loaded is not None:
            await loaded.engine.close(drain=max(self._drain - waited, 0))
            loaded.texts.close()
        self.service.body.close()
        self._server.should_exit = True
        await serving


class _Quiet(uvicorn.Server):
    """uvicorn's server, whose signals are ours: it would end the process by the signal, and not with status 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None are."""
        yield


def _config(service: Service) -> uvicorn.Config:
    settings = service.settings
    return uvicorn.Config(
        application(service),
        http=patient(settings.header_seconds, settings.write_seconds),
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=LAST_WRITES,
    )


@contextmanager
def _signalled(loop: asyncio.AbstractEventLoop, stop: Callable[[int], None]) -> Iterator[None]:
    """Signals end the server in order, where it runs in the main thread."""
    main = threading.current_thread() is threading.main_thread()
    for number in SIGNALS if main else ():
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in SIGNALS if main else ():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)


def _in_thread(load: Callable[[], Loaded]) -> asyncio.Future[Loaded]:
    """The result of a function that runs in a thread which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Loaded] = loop.create_future()

    def deliver(loaded: Loaded | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        elif loaded is not None:
            result.set_result(loaded)

    def work() -> None:
        loaded, error = None, None
        try:
            loaded = load()
        except BaseException as reason:
            error = reason
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(deliver, loaded, error)

    threading.Thread(target=work, name="loading", daemon=True).start()
    return result
