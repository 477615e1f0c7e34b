"""Clients that leave: their work stops, whatever they were waiting for, and nobody else notices."""

import asyncio
import socket
import threading

import openai
import pytest

from serve.conftest import call, client_of, running, sent, until
from serve.fake_engine import TEMPLATE, FakeEngine


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_stops_within_a_token(stream):
    with running(FakeEngine(pace=0.02)) as server:
        with sent(server, "/v1/completions", {"prompt": "x", "max_tokens": 100_000, "n": 3, "stream": stream}):
            assert until(lambda: server.engine.written > 10)
        assert until(lambda: not server.engine.open)
        written = server.engine.written
        assert len(server.engine.cancelled) == 3
        assert until(lambda: server.working() == [])
        assert server.engine.written == written
        assert until(lambda: 'status="499"' in metrics(server) or stream)


def metrics(server):
    return call(server, "GET", "/metrics").body.decode()


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_leaves_the_queue(stream):
    with running(FakeEngine(before_first=1000)) as server:
        with sent(server, "/v1/completions", {"prompt": "x", "stream": stream}):
            assert until(lambda: server.engine.open)
        assert until(lambda: not server.engine.open)
        assert server.engine.written == 0
        assert until(lambda: server.working() == [])


@pytest.mark.parametrize("stream", [True, False])
def test_a_turn_that_was_left_does_not_count(stream):
    """So a client that sends it again is not answered twice."""
    with running(FakeEngine(template=TEMPLATE, pace=0.02)) as server:
        body = {"messages": [{"role": "user", "content": "Hello"}], "session": "left", "stream": stream}
        assert (
            call(server, "POST", "/v1/chat/completions", {**body, "new_session": True, "max_tokens": 2}).status == 200
        )
        before = server.engine.session_state("left")
        with sent(server, "/v1/chat/completions", {**body, "max_tokens": 100_000}):
            assert until(lambda: server.engine.written > 5)
        assert until(lambda: not server.engine.open)
        assert server.engine.session_state("left") is before
        assert call(server, "POST", "/v1/chat/completions", {**body, "max_tokens": 2}).status == 200
        assert len(server.engine.session_state("left").said.messages) == 3


def test_losses_are_not_computed_for_nobody():
    with running(FakeEngine(pace=1000)) as server:
        with sent(server, "/api/losses", {"text": "hello world", "models": ["default"]}):
            assert until(lambda: "wait_until_gone" in server.working())
        assert until(lambda: server.working() == [])


def test_the_client_library_cancels():
    async def leave(server):
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            stream = await client.completions.create(model="default", prompt="x", max_tokens=10**6, stream=True)
            async for _ in stream:
                break
            await stream.close()

    with running(FakeEngine(pace=0.01)) as server:
        asyncio.run(leave(server))
        assert until(lambda: not server.engine.open)


def test_others_streams_go_on():
    with running(FakeEngine(pace=0.01)) as server:
        texts = {}

        def read(number):
            stream = client_of(server).completions.create(
                model="default", prompt=[70 + number, 80], max_tokens=60, stream=True
            )
            texts[number] = "".join(chunk.choices[0].text for chunk in stream)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for size in range(1, 40):  # others leave at every byte of their requests, and of their answers
            request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            request += b'Content-Length: 31\r\n\r\n{"prompt": "x", "stream": true}'
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(request[: len(request) * size // 39])
                if size == 39:
                    connection.recv(10)
        for thread in threads:
            thread.join(30)
        decode = server.engine.tokenizer.decode
        assert texts == {number: decode([70 + number, 80] * 30) for number in range(4)}
        assert until(lambda: not server.engine.open)
        assert until(lambda: server.working() == [])
