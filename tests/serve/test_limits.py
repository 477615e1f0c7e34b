"""Bodies that are too large, or too slow."""

import json
import socket
import time

import pytest

from serve.conftest import call, curl, running

LIMIT = 20_000
QUICK = {"body_bytes": LIMIT, "body_seconds": 0.5}
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


def test_curl_sends_ten_megabytes_and_reads_why_not(server, tmp_path):
    (tmp_path / "body").write_bytes(b" " * 10 * 2**20)
    options = ["-w", "%{http_code}", "-H", "Content-Type: application/json", "--data-binary", f"@{tmp_path / 'body'}"]
    assert curl(*options, f"{server.url}/v1/completions").stdout.endswith(b"413")


def test_a_body_must_arrive_in_time(server):
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        begun = time.monotonic()
        answer = everything(connection)
        assert time.monotonic() - begun < 5
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"within 0.5 seconds" in answer


def test_a_second_request_may_come_on_the_same_connection(server):
    request = HEAD + b'Content-Length: 15\r\n\r\n{"prompt": "x"}'
    with connected(server) as connection:
        for _ in range(2):
            connection.sendall(request)
            time.sleep(0.2)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
