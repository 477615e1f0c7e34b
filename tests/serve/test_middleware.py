"""The API key, the name of the host, and pages of other sites."""

import base64

import openai
import pytest

from serve.conftest import call, client_of, running

KEY = "sk-secret-é"
CLOSED = ["/", "/metrics", "/v1/models", "/v1/sessions/x", "/nothing"]


@pytest.fixture(scope="module")
def locked():
    with running(settings={"api_key": KEY}) as one:
        yield one


def test_health_is_open(locked):
    assert call(locked, "GET", "/health").status == 200


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize(
    "sent", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {KEY}", "Basic !!", KEY, "Digest x"]
)
def test_everything_else_is_closed(locked, path, sent):
    headers = {} if sent is None else {"Authorization": sent.encode()}
    answer = call(locked, "GET", path, headers=headers)
    assert answer.status == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"].startswith("Basic" if path == "/" else "Bearer")


def test_the_key_opens(locked):
    answer = call(locked, "GET", "/v1/models", headers={"Authorization": f"Bearer {KEY}".encode()})
    assert answer.status == 200


def test_a_browser_sends_the_key_as_a_password(locked):
    sent = base64.b64encode(f"anybody:{KEY}".encode()).decode()
    assert call(locked, "GET", "/", headers={"Authorization": f"Basic {sent}"}).status == 200


def test_openais_client_says_what_is_wrong(locked):
    with pytest.raises(openai.AuthenticationError, match="the API key is missing or wrong"):
        client_of(locked, api_key="wrong").models.list()


def test_without_a_key_the_server_must_be_called_by_a_name_of_this_machine():
    with running(settings={"hosts": ("localhost", "127.0.0.1", "[::1]")}) as local:
        for name, status in [
            ("localhost:1", 200),
            ("[::1]:80", 200),
            ("evil.example", 403),
            ("127.0.0.1.evil.example:8000", 403),
        ]:
            answer = call(local, "GET", "/v1/models", headers={"Host": name})
            assert answer.status == status, name
        assert answer.json()["error"]["code"] == "host"


def test_pages_of_other_sites_may_not_call_unless_they_are_named(locked):
    preflight = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    closed = call(locked, "OPTIONS", "/v1/completions", headers=preflight)
    assert "access-control-allow-origin" not in closed.headers
    with running(settings={"allow_origins": ("https://page.example",), "api_key": KEY}) as named:
        opened = call(named, "OPTIONS", "/v1/completions", headers=preflight)
        assert (opened.status, opened.headers["access-control-allow-origin"]) == (200, "https://page.example")
        refused = call(named, "GET", "/v1/models", headers={"Origin": "https://page.example"})
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "https://page.example")
        other = call(named, "OPTIONS", "/v1/completions", headers={**preflight, "Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers
