"""Bodies that are too large, and clients that are too slow to write or to read."""

import asyncio
import contextlib
import json
import socket
import time
from unittest.mock import MagicMock

import pytest
import uvicorn
from uvicorn.server import ServerState

from ropewalk.serve.api.patience import patient

from serve.api.conftest import call, curl, running, until
from serve.api.fake_engine import FakeEngine

LIMIT = 20_000
QUICK = {"body_bytes": LIMIT, "body_seconds": 0.5, "header_seconds": 0.5, "write_seconds": 0.5}
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server():
    with running(settings=QUICK) as one:
        yield one


def connected(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def everything(connection):
    """What comes until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def body_of(size):
    return json.dumps({"prompt": "x", "user": "x" * (size - 29)}).encode()


def test_a_body_may_be_as_large_as_the_limit(server):
    body = body_of(LIMIT)
    assert len(body) == LIMIT - 2
    assert call(server, "POST", "/v1/completions", body + b"  ").status == 200
    assert call(server, "POST", "/v1/completions", body + b"   ").status == 413


def test_a_larger_body_is_refused_with_the_number(server):
    for size in (LIMIT + 100, 3 * LIMIT):
        refused = call(server, "POST", "/v1/completions", body_of(size))
        assert (refused.status, refused.error["code"]) == (413, "too_large")
        assert "at most 20,000 bytes" in refused.error["message"]
        assert refused.headers["connection"] == "close"


def test_a_body_without_a_declared_length_is_bounded_too(server):
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    with connected(server) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 10 + b"0\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 413")


def test_who_asks_before_sending_is_told_at_once(server):
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 413")
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 15\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(b'{"prompt": "x"}')
        assert b"HTTP/1.1 200" in everything(connection)


def test_curl_sends_ten_megabytes_and_reads_why_not(server, tmp_path):
    (tmp_path / "body").write_bytes(b" " * 10 * 2**20)
    options = ["-w", "%{http_code}", "-H", "Content-Type: application/json", "--data-binary", f"@{tmp_path / 'body'}"]
    done = curl(*options, f"{server.url}/v1/completions")
    assert done.stdout.endswith(b"413")


def test_a_body_must_arrive_in_time(server):
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        begun = time.monotonic()
        answer = everything(connection)
        assert time.monotonic() - begun < 5
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"within 0.5 seconds" in answer


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"])
def test_headers_must_arrive_in_time(server, sent):
    with connected(server) as connection:
        connection.sendall(sent)
        begun = time.monotonic()
        assert everything(connection) == b""
        assert time.monotonic() - begun < 5


def test_headers_that_trickle_are_not_waited_for(server):
    with connected(server) as connection:
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 100:
                connection.sendall(b"A")
                sent += 1
                time.sleep(0.05)
        assert 5 <= sent < 50


def test_a_second_request_may_come_on_the_same_connection(server):
    request = HEAD + b'Content-Length: 15\r\n\r\n{"prompt": "x"}'
    with connected(server) as connection:
        for _ in range(2):
            connection.sendall(request)
            time.sleep(0.7)  # longer than headers may take, since none have begun
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_connection_that_begins_a_second_request(server):
    with connected(server) as connection:
        connection.sendall(HEAD + b'Content-Length: 15\r\n\r\n{"prompt": "x"}')
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(0.2)
        connection.sendall(b"POST /v1/comp")
        begun = time.monotonic()
        everything(connection)
        assert time.monotonic() - begun < 5


LENGTHS = (b"Content-Length: 15", b"Transfer-Encoding: chunked")


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[::-1], (b"TRANSFER-encoding:  chunked", b"content-LENGTH: 0")])
def test_two_lengths_of_one_body_are_refused(server, lengths):
    """A proxy may believe the other one, and take the rest of the body for another client's request."""
    chunked = b'f\r\n{"prompt": "x"}\r\n0\r\n\r\n'
    with connected(server) as connection:
        connection.sendall(
            HEAD + b"\r\n".join(lengths) + b"\r\n\r\n" + chunked + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"either Content-Length or Transfer-Encoding, not both" in answer
    assert answer.count(b"HTTP/1.1") == 1
    for length, body in zip(LENGTHS, (b'{"prompt": "x"}', chunked), strict=True):
        with connected(server) as connection:
            connection.sendall(HEAD + length + b"\r\nConnection: close\r\n\r\n" + body)
            assert everything(connection).startswith(b"HTTP/1.1 200")


def test_what_is_no_http_is_refused_in_json(server):
    with connected(server) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "http"


def test_who_does_not_read_is_cut_off_and_the_work_stops():
    engine = FakeEngine(answer="x" * 500_000)
    with running(engine, settings=QUICK) as server, connected(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = b'{"prompt": "x", "stream": true}'
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert until(lambda: engine.open, 10)
        assert until(lambda: not engine.open, 20)
        assert until(lambda: server.working() == [])


@pytest.mark.nightly
def test_bodies_that_arrive_together_are_bounded():
    with running(settings={**QUICK, "body_seconds": 20}) as server, contextlib.ExitStack() as closing:
        waiting = [closing.enter_context(connected(server)) for _ in range(30)]
        for connection in waiting:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % LIMIT + b" " * (LIMIT - 10))
        answers = list(filter(None, map(soon, waiting)))
        assert len(answers) == 5
        assert all(answer.startswith(b"HTTP/1.1 503") for answer in answers)
        closing.close()
        assert until(lambda: call(server, "POST", "/v1/completions", {"prompt": "x"}).status == 200)


def soon(connection):
    """What has come within a moment, if anything."""
    connection.settimeout(0.3)
    try:
        return connection.recv(65536)
    except TimeoutError:
        return None


def test_of_a_connection_that_is_gone_nothing_is_waited_for():
    """A timer that stays holds the connection for as long as headers may take; of many that hurts."""

    async def gone():
        config = uvicorn.Config(lambda scope: None, http=patient(100.0, 100.0), log_config=None)
        config.load()
        loop = asyncio.get_running_loop()
        connection = config.http_protocol_class(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        before = {*loop._scheduled}
        connection.connection_made(MagicMock())
        begun = {*loop._scheduled} - before
        connection.connection_lost(None)
        return [timer.cancelled() for timer in begun]

    assert asyncio.run(gone()) == [True]
