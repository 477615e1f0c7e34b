"""Whatever is sent: no failure of the server, no leak, and the others' streams unharmed."""

import asyncio
import json
import socket
import threading

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from serve.conftest import call, client_of, running, until
from serve.fake_engine import TEMPLATE, FakeEngine
from serve.generation.small_engine import held, real_engine

PATHS = (
    "/v1/completions",
    "/v1/chat/completions",
    "/tokenize",
    "/detokenize",
    "/api/losses",
    "/api/attention",
    "/api/drawing",
)
NAMES = (
    *(
        "model",
        "prompt",
        "messages",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "seed",
    ),
    *(
        "stop",
        "stream",
        "stream_options",
        "logprobs",
        "top_logprobs",
        "echo",
        "session",
        "new_session",
        "contexts",
        "decoding",
        "tools",
    ),
    *("text", "models", "layer", "head", "tokens", "ignore_eos", "user", "logit_bias", "response_format"),
)
numbers = st.sampled_from([0, 1, -1, 2, 0.5, 1e308, -1e308, 10**40, 2**63, 2**31, True, 1.0])
words = st.sampled_from(
    [
        "",
        "default",
        "default@",
        "default@bare",
        "default@yarn:factor=1e308",
        "@",
        "x" * 3000,
        "/etc/passwd.json",
        "\u0000",
    ]
)
leaves = st.none() | numbers | words | st.text(max_size=20)
roles = st.sampled_from(["user", "assistant", "system", "tool", "", 5])
messages = st.lists(st.fixed_dictionaries({"role": roles, "content": leaves}), max_size=3)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), anything | messages, max_size=8)
plausible = st.fixed_dictionaries(
    {
        "prompt": leaves | st.lists(leaves, max_size=4),
        "messages": messages,
        "text": leaves,
        "tokens": st.lists(numbers),
    },
    optional={name: anything for name in NAMES if name not in ("prompt", "messages", "text", "tokens")},
)
OFTEN = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


ENGINES = {"fake": lambda: FakeEngine(template=TEMPLATE, pace=0.002, room=1000), "real": real_engine}


@pytest.fixture(scope="module", params=ENGINES)
def server(request):
    """A server that somebody else reads a stream from all the while."""
    with running(ENGINES[request.param]()) as one:
        done, texts = threading.Event(), []

        def read():
            while not done.is_set():
                stream = client_of(one).completions.create(
                    model="default", prompt=[70, 80], max_tokens=100, temperature=0, stream=True
                )
                texts.append("".join(chunk.choices[0].text for chunk in stream))

        reader = threading.Thread(target=read)
        reader.start()
        yield one
        done.set()
        reader.join(20)
        assert len(set(texts)) == 1
        assert until(lambda: one.engine.state()[:2] == (0, 0))
        assert until(lambda: one.working() == [])
        assert 'status="500"' not in call(one, "GET", "/metrics").body.decode()
        if request.param == "real":
            require_nothing_held(one)


def require_nothing_held(server):
    """Without the sessions that were begun, no page is in use."""
    engine = server.engine
    for name in list(engine._sessions._known):
        assert asyncio.run_coroutine_threadsafe(engine.drop_session(name), server.loop).result(5)
    assert held(engine) == 0


def require_answer(reply):
    """A success, or a refusal in OpenAI's shape with a sentence."""
    assert reply.status in (200, 400, 403, 404, 405, 408, 409, 410, 413, 415, 429), reply.body
    if reply.status != 200:
        assert set(reply.error) == {"message", "type", "param", "code"}
        assert isinstance(reply.error["message"], str)
        assert 0 < len(reply.error["message"]) < 5000


@pytest.mark.sampled(cases=1)
@OFTEN
@given(st.sampled_from(PATHS), bodies | plausible)
@example("/v1/completions", {"prompt": "x", "model": "default@/etc/passwd.json"})
@example("/v1/completions", {"prompt": "x", "n": 16, "max_tokens": 2**40})
@example("/v1/completions", {"prompt": "\U0001f9d1\u200d\U0001f680\u0300\u202e\u0000"})
@example("/detokenize", {"tokens": [2047] * 5000})
def test_bodies_of_all_kinds(server, path, body):
    if isinstance(body.get("max_tokens"), int) and body["max_tokens"] > 500:
        body["model"] = "default@bare"  # which ends
    require_answer(call(server, "POST", path, body))


@OFTEN
@given(st.sampled_from(PATHS), st.binary(max_size=300))
def test_bytes_of_all_kinds(server, path, body):
    require_answer(call(server, "POST", path, body))


@OFTEN
@given(st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS"]), st.text(max_size=40))
def test_paths_of_all_kinds(server, method, path):
    from urllib.parse import quote

    reply = call(server, method, "/" + quote(path), {} if method == "POST" else None)
    assert reply.status < 500
    if method != "HEAD" and reply.status != 200:
        require_answer(reply)


@OFTEN
@given(st.binary(max_size=200))
@example(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n")
@example(b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n")
@example(b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n")
@example(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{}")
@example(b"GET /health HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
def test_what_is_hardly_http(server, data):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = connection.recv(65536)
        except ConnectionResetError:
            return
    assert b"HTTP/1.1 5" not in answer


@OFTEN
@given(st.integers(0, 400), st.booleans())
def test_clients_that_leave_at_any_byte(server, place, reads):
    body = json.dumps({"prompt": "x", "stream": True, "max_tokens": 30}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    data = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(data[:place])
        if reads and place >= len(data):
            connection.recv(place)


@pytest.mark.nightly
def test_ten_megabytes_of_everything(server):
    size = 10 * 2**20 - 100
    many = [
        {"prompt": "x" * size},
        {"prompt": ["x"] * (size // 5)},
        {"prompt": [1] * (size // 3)},
        {"messages": [1] * (size // 3)},
        {"messages": [{"role": "user", "content": "x" * size}], "model": "default@bare"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * (size // 40)}], "max_tokens": 1},
        {"stop": ["x"] * (size // 5), "prompt": "x"},
        {"contexts": ["x"] * (size // 5), "prompt": "x"},
        {f"k{n}": n for n in range(size // 25)},
        {"stream_options": {f"k{n}": n for n in range(size // 25)}, "prompt": "x"},
    ]
    for body in many:
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        body = {"model": "default@bare", **body}
        require_answer(call(server, "POST", path, json.dumps(body, separators=(",", ":")).encode()))
    nested = b"[" * (size // 2) + b"]" * (size // 2)
    require_answer(call(server, "POST", "/v1/completions", b'{"prompt":' + nested + b"}"))
