"""The page, and the policy that a browser holds it to."""

import base64
import hashlib

from ropewalk.serve.page import policy_of

from serve.conftest import call


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
