"""The page, and the policy that a browser holds it to."""

import base64
import hashlib
import json
import re

import pytest

from ropewalk.page.drawing import draw
from ropewalk.serve.page import policy_of

from serve.conftest import call
from serve.fake_engine import FACTS


def test_the_page_is_served_under_its_policy(server):
    page = call(server, "GET", "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Ropewalk" in page.body.decode()
    policy = page.headers["content-security-policy"]
    assert policy == policy_of(page.body.decode())
    for rule in (
        "default-src 'none'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ):
        assert rule in policy


def test_the_page_opens_on_what_is_served(server):
    """The unchanged model beside the extension of the start, and every other one that is served."""
    text = call(server, "GET", "/").body.decode()
    assert re.search(r'"first":\s*\{"a":\s*"rope","b":\s*"rerope\+log_n"', text)
    assert '"streaming:window=252,n_sink=4@4096"' in text
    assert '"bare@' not in text


def test_a_line_is_drawn_for_the_servers_model(server):
    answer = call(server, "POST", "/api/drawing", {"line": "rerope:window=100", "length": 4096}).json()
    assert answer == json.loads(json.dumps(draw("rerope:window=100", FACTS, 4096)))
    assert answer["drawings"]["rerope:window=100@4096"]["made"] == [[None, "rerope:window=100"]]
    refused = call(server, "POST", "/api/drawing", {"line": "rerope:window=512", "length": 4096}).json()
    assert "window must be at most 511" in refused["drawings"]["rerope:window=512@4096"]["refused"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"line": "/etc/x.json", "length": 64}, "line must be a line, since the server reads no files"),
        ({"line": "./my.py:Slope", "length": 64}, "line must be a line, since the server reads no files"),
        (
            {"line": "resonance:inner=(./my.py:Slope)", "length": 64},
            "line must be a line, since the server reads no files",
        ),
        ({"line": " a.json ", "length": 64}, "line must be a line, since the server reads no files"),
        ({"line": "yarn"}, "length must be a whole number from 1"),
        ({"line": "yarn", "length": True}, "length must be a whole number from 1"),
        ({"line": "yarn", "length": 2**41}, "length must be a whole number from 1"),
        ({"length": 64}, "line must be text"),
        ({"lines": "yarn", "length": 64}, "did you mean 'line'"),
    ],
)
def test_what_is_no_line_or_length_is_refused(server, body, message):
    refused = call(server, "POST", "/api/drawing", body)
    assert refused.status == 400
    assert message in refused.error["message"]


def test_only_what_is_in_the_page_runs():
    script, style = "alert('<style>')\n", "p { color: red }"
    html = f'<style media="all">{style}</style><SCRIPT type="module">{script}</SCRIPT><script></script>'
    rules = dict(rule.strip().split(" ", 1) for rule in policy_of(html).split(";"))
    assert rules["script-src"].split() == [hashed(script), hashed("")]
    assert rules["style-src"] == hashed(style)
    assert "unsafe-inline" not in rules["script-src"]


def test_a_page_without_scripts_runs_none():
    assert "script-src 'none'; style-src 'none'" in policy_of("<p>plain</p>")


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
