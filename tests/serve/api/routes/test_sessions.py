"""Sessions: their state, their end, and what is refused."""

import openai
import pytest

from ropewalk.serve.generation.request import SessionBusy

from serve.api.conftest import call, client_of, running
from serve.api.fake_engine import FakeEngine


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine()) as one:
        yield one


@pytest.fixture
def client(server):
    return client_of(server)


def ask(client, session, **options):
    extra = {"extra_body": {"session": session}}
    return client.completions.create(model="default", prompt="hello", max_tokens=2, **extra, **options)


def test_a_session_is_counted_and_forgotten(client, server):
    done = ask(client, "one")
    assert done.usage.session == {"tokens": 5, "forgotten_tokens": 0}
    state = client.get("/sessions/one", cast_to=object)
    assert state == {"id": "one", "object": "session", "tokens": 5, "forgotten_tokens": 0}
    assert client.delete("/sessions/one", cast_to=object) == {"id": "one", "object": "session.deleted", "deleted": True}
    for method in (client.get, client.delete):
        with pytest.raises(openai.NotFoundError, match="no such session"):
            method("/sessions/one", cast_to=object)


def test_what_was_forgotten_is_said(client, server):
    server.engine.sessions["long"] = 1000
    assert ask(client, "long").usage.session == {"tokens": 1005, "forgotten_tokens": 749}
    server.engine.sessions.clear()


def test_an_evicted_session_is_gone(client, server):
    server.engine.gone.add("old")
    with pytest.raises(openai.APIStatusError, match="evicted") as refused:
        ask(client, "old")
    assert (refused.value.status_code, refused.value.code) == (410, "session_gone")
    assert call(server, "GET", "/v1/sessions/old").status == 410


def test_a_busy_session_is_named(client, server):
    server.engine.failure = SessionBusy("x")
    try:
        for stream in (False, True):
            with pytest.raises(openai.ConflictError, match="another request") as refused:
                ask(client, "busy", stream=stream)
            assert refused.value.code == "session_busy"
    finally:
        server.engine.failure = None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 129, "-a", "a\n"])
def test_names_of_sessions_are_plain(client, name):
    with pytest.raises(openai.BadRequestError, match="letters, digits") as refused:
        ask(client, name)
    assert refused.value.param == "session"


def test_a_session_has_one_answer_to_one_text(client):
    with pytest.raises(openai.BadRequestError, match="n must be 1"):
        ask(client, "s", n=2)
    with pytest.raises(openai.BadRequestError, match="one text under a session"):
        client.completions.create(model="default", prompt=["a", "b"], extra_body={"session": "s"})
    with pytest.raises(openai.BadRequestError, match="leave out session or contexts"):
        client.completions.create(model="default", prompt="a", extra_body={"session": "s", "contexts": ["c"]})
