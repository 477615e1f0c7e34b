"""A server's life: bound before it is loaded, drained before it ends."""

import logging
import threading
import time

import openai
import pytest

from ropewalk.errors import InvalidValue
from ropewalk.serve.server import bind, url_of
from ropewalk.serve.service import ServedModels

from serve.conftest import START, call, client_of, curl, running, until
from serve.fake_engine import FakeEngine


def test_it_answers_while_it_loads():
    may, engine = threading.Event(), FakeEngine()

    def load():
        may.wait(10)
        return ServedModels(engine, START)

    with running(engine, wait=False, load=load) as server:
        assert until(lambda: hasattr(server, "loop"))
        health, models = call(server, "GET", "/health"), call(server, "GET", "/v1/models")
        assert (health.status, health.json()) == (503, {"status": "loading"})
        assert (models.status, models.error["message"]) == (503, "the model is being loaded")
        assert models.headers["retry-after"] == "2"
        assert call(server, "GET", "/metrics").status == 200
        may.set()
        assert server.is_ready.wait(10)
        assert call(server, "GET", "/health").json() == {"status": "ready"}
        assert client_of(server).models.list().data[0].id == "default@rerope+log_n"


def test_what_cannot_be_loaded_ends_it():
    def load():
        raise InvalidValue("model", "one that loads", "x")

    with running(wait=False, load=load) as server:
        server.thread.join(10)
        assert not server.thread.is_alive()
    assert isinstance(server.error, InvalidValue)


def test_it_ends_while_it_loads():
    may = threading.Event()
    with running(wait=False, load=lambda: may.wait(20)) as server:
        assert until(lambda: hasattr(server, "loop"))
        server.stop()
        server.thread.join(5)
        assert not server.thread.is_alive()
        assert server.server.loads
        may.set()
    assert server.error is None


def test_running_answers_are_finished_and_new_ones_refused():
    with running(FakeEngine(pace=0.05)) as server:
        client = client_of(server)
        stream = client.completions.create(model="default", prompt="hello", max_tokens=30, stream=True)
        next(iter(stream))
        server.stop()
        assert until(lambda: server.server.service.phase == "draining")
        refused = call(server, "POST", "/v1/completions", {"prompt": "x"})
        assert (refused.status, refused.error["message"]) == (503, "the server is shutting down")
        assert refused.headers["retry-after"] == "30"
        health = call(server, "GET", "/health")
        assert (health.status, health.json()) == (503, {"status": "draining"})
        assert list(stream)[-1].choices[0].finish_reason == "length"
        server.thread.join(10)
        assert not server.thread.is_alive()
    assert server.error is None
    assert server.engine.closed is not None
    assert server.left == []


def test_what_does_not_finish_in_time_is_cut_off_and_says_so():
    with running(FakeEngine(pace=0.05), drain=0.3) as server:
        stream = client_of(server).completions.create(model="default", prompt="x", max_tokens=10_000, stream=True)
        next(iter(stream))
        begun = time.monotonic()
        server.stop()
        with pytest.raises(openai.APIError, match="the server is shutting down"):
            list(stream)
        server.thread.join(10)
        assert 0.2 < time.monotonic() - begun < 8
    assert server.left == []


def test_a_second_signal_does_not_wait():
    with running(FakeEngine(pace=0.05), drain=60) as server:
        stream = client_of(server).completions.create(model="default", prompt="x", max_tokens=10_000, stream=True)
        next(iter(stream))
        server.stop()
        server.stop()
        server.thread.join(10)
        assert not server.thread.is_alive()


def test_a_port_that_is_taken_is_named():
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidValue, match=f"free to be bound, got '127.0.0.1:{port}'"):
            bind("127.0.0.1", port)
    with pytest.raises(InvalidValue, match="free to be bound"):
        bind("no.such.host.invalid", 0)


def test_addresses_are_written_as_clients_write_them():
    assert url_of("127.0.0.1", 80) == "http://127.0.0.1:80"
    assert url_of("::1", 80) == "http://[::1]:80"


def test_paths_and_methods_that_do_not_exist(server):
    missing = call(server, "GET", "/v1/<script>")
    assert (missing.status, missing.error["code"]) == (404, "not_found")
    assert missing.headers["content-type"] == "application/json"
    assert missing.headers["x-content-type-options"] == "nosniff"
    wrong = call(server, "GET", "/v1/completions")
    assert (wrong.status, wrong.headers["allow"], wrong.error["code"]) == (405, "POST", "method_not_allowed")
    assert call(server, "GET", "/v1/models/").status == 404
    for page in ("/docs", "/redoc", "/openapi.json"):
        assert call(server, "GET", page).status == 404


def test_no_text_of_a_client_reaches_the_log(server, caplog):
    server.engine.failure = RuntimeError("SECRET in the engine")
    with caplog.at_level(logging.DEBUG):
        for stream in (False, True):
            assert call(server, "POST", "/v1/completions", {"prompt": "SECRET", "stream": stream}).status == 500
        call(server, "POST", "/v1/completions", {"prompt": "x", "SECRET": 1})
        call(server, "GET", "/SECRET")
    assert "a request failed by RuntimeError" in caplog.text
    assert "SECRET" not in caplog.text


def test_curl_streams(server):
    body = '{"prompt": "hello", "max_tokens": 3, "stream": true}'
    done = curl("-N", f"{server.url}/v1/completions", "-H", "Content-Type: application/json", "-d", body)
    events = done.stdout.decode().split("\n\n")
    assert [event[:6] for event in events[:-1]] == ["data: "] * (len(events) - 1)
    assert events[-2:] == ["data: [DONE]", ""]


def test_curl_is_told_the_content_type(server):
    done = curl("-w", "%{http_code}", f"{server.url}/v1/completions", "-d", "{}")
    assert b"send the header Content-Type: application/json" in done.stdout
    assert done.stdout.endswith(b"415")
