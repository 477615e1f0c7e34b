"""Sessions: their state, their end, and what is refused."""

import openai
import pytest

from ropewalk.serve.generation.request import SessionBusy, SessionGone, SessionState

from serve.conftest import call, client_of, running
from serve.fake_engine import FakeEngine


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine()) as one:
        yield one


@pytest.fixture
def client(server):
    return client_of(server)


def ask(client, session, *, new=True, **options):
    extra = {"extra_body": {"session": session, "new_session": new}}
    return client.completions.create(model="default", prompt="hello", max_tokens=2, **extra, **options)


def test_a_session_is_counted_and_forgotten(client, server):
    assert ask(client, "one").usage.session == {"tokens": 5, "forgotten_tokens": 0}
    state = client.get("/sessions/one", cast_to=object)
    assert state == {"id": "one", "object": "session", "tokens": 5, "forgotten_tokens": 0}
    assert client.delete("/sessions/one", cast_to=object) == {"id": "one", "object": "session.deleted", "deleted": True}
    for method in (client.get, client.delete):
        with pytest.raises(openai.NotFoundError, match="no such session"):
            method("/sessions/one", cast_to=object)


def test_what_was_forgotten_is_said(client, server):
    server.engine.sessions["long"] = SessionState(1000, 744)
    assert ask(client, "long", new=False).usage.session == {"tokens": 1005, "forgotten_tokens": 749}
    server.engine.sessions.clear()


def test_a_session_that_is_not_there_is_not_begun_in_silence(client, server):
    """As after a restart: an answer without the turns before would look like any other."""
    with pytest.raises(openai.NotFoundError, match=r"no session 'unknown'.* start it with new_session") as refused:
        ask(client, "unknown", new=False)
    assert (refused.value.code, refused.value.param) == ("no_session", "session")
    assert server.engine.sessions == {}


def test_a_session_is_begun_once(client):
    ask(client, "twice")
    with pytest.raises(openai.ConflictError, match="session 'twice' already exists; leave new_session out") as refused:
        ask(client, "twice")
    assert refused.value.code == "session_exists"
    client.delete("/sessions/twice", cast_to=object)
    ask(client, "twice")


def test_new_session_needs_a_name(client):
    with pytest.raises(openai.BadRequestError, match="name it by session"):
        client.completions.create(model="default", prompt="x", extra_body={"new_session": True})


def test_an_evicted_session_is_gone(client, server):
    ask(client, "old")
    del server.engine.sessions["old"]
    with pytest.raises(openai.APIStatusError, match="evicted") as refused:
        ask(client, "old", new=False)
    assert (refused.value.status_code, refused.value.code) == (404, "no_session")
    assert call(server, "GET", "/v1/sessions/old").status == 404
    assert ask(client, "old").usage.session["tokens"] == 5  # the remedy works


def test_a_session_that_is_evicted_meanwhile_is_gone(client, server):
    server.engine.failure = SessionGone("x")
    try:
        with pytest.raises(openai.APIStatusError, match="evicted") as refused:
            ask(client, "late")
    finally:
        server.engine.failure = None
    assert (refused.value.status_code, refused.value.code) == (410, "session_gone")


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
    with pytest.raises(openai.BadRequestError, match="a single text with a session"):
        client.completions.create(model="default", prompt=["a", "b"], extra_body={"session": "s"})
    with pytest.raises(openai.BadRequestError, match="leave out session or contexts"):
        client.completions.create(model="default", prompt="a", extra_body={"session": "s", "contexts": ["c"]})
