"""A server on a real socket, in a thread of its own."""

import asyncio
import threading
import time
from contextlib import contextmanager

import openai
import pytest

from ropewalk.serve.api.server import HttpServer, bound
from ropewalk.serve.api.service import ApiSettings, Loaded

from serve.api.fake_engine import FakeEngine

START = "rerope+log_n"


class Running:
    """A server, its engine, and a way to call into its loop."""

    def __init__(self, engine, settings, *, drain=5.0, load=None, sessions=None):
        self.engine = engine
        self.is_ready = threading.Event()
        listening = bound("127.0.0.1", 0)
        load = load or (lambda: Loaded(engine, START, None, sessions))
        self.server = HttpServer(
            settings, listening, load, drain=drain, ready=lambda loaded, address: self.is_ready.set()
        )
        self.url, self.port = self.server.address.url, self.server.address.port
        self.error = None
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        async def main():
            self.loop = asyncio.get_running_loop()
            await self.server.serve()
            self.left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

        try:
            asyncio.run(main())
        except Exception as error:
            self.error = error

    def stop(self):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.server.stop)

    def tasks(self):
        """The tasks of the server's loop."""
        return asyncio.run_coroutine_threadsafe(_tasks(), self.loop).result(5)


async def _tasks():
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@contextmanager
def running(engine=None, *, wait=True, **options):
    settings = ApiSettings(**options.pop("settings", {}))
    one = Running(engine or FakeEngine(), settings, **options)
    one.thread.start()
    try:
        assert not wait or one.is_ready.wait(10), one.error
        yield one
    finally:
        one.stop()
        one.thread.join(20)
        assert not one.thread.is_alive()


def until(condition, seconds=5.0):
    """Whether something becomes true soon."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def server():
    with running() as one:
        yield one


def client_of(server, **options):
    """OpenAI's client."""
    return openai.OpenAI(base_url=f"{server.url}/v1", **{"api_key": "none", "max_retries": 0, **options})
