"""`/api/losses` and `/api/attention`."""

import pytest

from ropewalk.serve.generation.request import QueueFull

from serve.conftest import call


def test_losses_of_a_text_under_several_models(server):
    body = {"text": "hello 你好", "models": ["default@bare", "default"]}
    shown = call(server, "POST", "/api/losses", body).json()
    assert "".join(shown["tokens"]) == "hello 你好"
    assert shown["trained_len"] == 512
    count = len(shown["tokens"]) - 1
    assert shown["losses"] == {"default@bare": [None] + [4.0] * count, "default": [None] + [12.0] * count}


def test_attention_of_one_head(server):
    shown = call(server, "POST", "/api/attention", {"text": "a b c", "model": "default", "layer": 5, "head": 3}).json()
    assert [len(row) for row in shown["weights"]] == list(range(1, len(shown["tokens"]) + 1))


@pytest.mark.sampled(cases=6)
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("losses", {"models": ["default"]}, "text must be text"),
        ("losses", {"text": "", "models": ["default"]}, "of 2 to 32,768 tokens"),
        ("losses", {"text": "a b"}, "a list of 1 to 8 names"),
        ("losses", {"text": "a b", "models": []}, "a list of 1 to 8 names"),
        ("losses", {"text": "a b", "models": [5]}, "a list of 1 to 8 names"),
        ("losses", {"text": "a b", "models": "default"}, "a list of 1 to 8 names"),
        ("losses", {"text": "a b", "models": ["default"] * 9}, "a list of 1 to 8 names"),
        ("losses", {"text": "a b" * 20_000, "models": ["default"]}, "tokens"),
        ("losses", {"text": "a b", "model": "default"}, "did you mean 'models'"),
        ("attention", {"text": "a b", "layer": 6}, "layer must be a whole number from 0 to 5, got 6"),
        ("attention", {"text": "a b", "layer": True}, "layer must be"),
        ("attention", {"text": "a b", "head": -1}, "head must be a whole number from 0 to 3"),
        ("attention", {"text": "a"}, "of 2 to 32,768 tokens"),
        ("attention", {"text": "x" * 10**6}, "text must be at most 32,768 tokens, got '1,000,000 characters'"),
    ],
)
def test_what_is_refused(server, path, body, message):
    refused = call(server, "POST", f"/api/{path}", body)
    assert refused.status == 400
    assert message in refused.error["message"]


def test_a_model_that_is_not_served(server):
    assert call(server, "POST", "/api/losses", {"text": "a b", "models": ["gpt"]}).status == 404
    assert call(server, "POST", "/api/attention", {"text": "a b", "model": "gpt"}).status == 404


def test_a_full_queue_is_a_status(server, monkeypatch):
    async def full(extension, ids):
        raise QueueFull("full")

    monkeypatch.setattr(server.engine, "losses", full)
    assert call(server, "POST", "/api/losses", {"text": "a b", "models": ["default"]}).status == 429


def test_of_a_long_text_the_last_tokens_are_read(server):
    shown = call(server, "POST", "/api/attention", {"text": "a b c d" * 200 + "xyz", "model": "default"}).json()
    assert len(shown["tokens"]) == len(shown["weights"]) == 512
    assert "".join(shown["tokens"]).endswith("xyz")
