"""A server on a real socket, in a thread of its own."""

import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager

import openai
import pytest

from ropewalk.serve.server import HttpServer, bind
from ropewalk.serve.service import ApiSettings, ServedModels

from serve.fake_engine import FakeEngine

START = "rerope+log_n"


class Running:
    """A server, its engine, and a way to call into its loop."""

    def __init__(self, engine, settings, *, drain=5.0, load=None):
        self.engine = engine
        self.is_ready = threading.Event()
        listening = bind("127.0.0.1", 0)
        load = load or (lambda: ServedModels(engine, START))
        self.server = HttpServer(settings, listening, load, drain=drain, ready=lambda loaded, url: self.is_ready.set())
        self.url, self.port = self.server.url, listening.getsockname()[1]
        self.error = None
        self.clients = []
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

    def working(self):
        """What the server's loop still does for requests."""
        return asyncio.run_coroutine_threadsafe(_working(), self.loop).result(5)


async def _working():
    names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("RequestResponseCycle", "Generations", "wait_until_gone"))]


@contextmanager
def running(engine=None, *, wait=True, **options):
    settings = ApiSettings(**options.pop("settings", {}))
    one = Running(engine or FakeEngine(), settings, **options)
    one.thread.start()
    try:
        assert not wait or one.is_ready.wait(10), one.error
        yield one
    finally:
        for client in one.clients:
            client.close()
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
    """OpenAI's client, closed with the server: a socket that is left to the garbage collector fails another test."""
    client = openai.OpenAI(base_url=f"{server.url}/v1", **{"api_key": "none", "max_retries": 0, **options})
    server.clients.append(client)
    return client


class Reply:
    """A whole response."""

    def __init__(self, response):
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]


def sent(server, path, body):
    """A connection on which a request was sent."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.sendall(head.encode() + data)
    return connection


def call(server, method, path, body=None, headers=None):
    """One request by Python's own client; a body that is no bytes is sent as JSON."""
    headers = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None:
        headers = {"Content-Type": "application/json", **headers}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        return Reply(connection.getresponse())
    finally:
        connection.close()


def curl(*arguments):
    """What curl prints; the test is skipped where there is no curl."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return subprocess.run(["curl", "-sS", *arguments], capture_output=True, timeout=60)
