"""Numbers at the edge of what JSON and Python can write: an answer or a refusal, never a failure, and no NaN."""

import json

import pytest

from serve.conftest import call, running
from serve.generation.small_engine import real_engine

VALUES = [
    *("0", "-0.0", "5e-324", "1e-320", "1e-308", "1e-45", "1e-38", "1e-30", "1e-7", "0.5", "1", "2", "-1"),
    *("1e38", "1e39", "1e308", "1e309", "-1e308", "NaN", "Infinity", "-Infinity"),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "1" + "0" * 400),
    *("9" * 5000, "true", "false", "null", '""', '"1"', '"\\ud800"', "[]", "[1]", "{}", '{"a": {"b": [[[1]]]}}'),
    *("[" * 900 + "]" * 900, "[" * 100_000 + "]" * 100_000),
]
FIELDS = {
    "/v1/completions": [
        *("n", "max_tokens", "temperature", "top_p", "top_k", "seed", "logprobs", "stop", "session", "new_session"),
        *("contexts", "decoding", "stream_options", "ignore_eos", "echo", "stream", "model", "prompt"),
    ],
    "/v1/chat/completions": ["max_completion_tokens", "top_logprobs", "temperature", "messages"],
    "/detokenize": ["tokens", "model"],
    "/api/attention": ["layer", "head", "text"],
    "/api/losses": ["models", "text"],
    "/api/drawing": ["length", "line"],
}
PLAIN = {
    "/v1/completions": {"prompt": "x", "max_tokens": 3, "model": "default@bare"},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 3,
        "model": "default@bare",
        "logprobs": True,
    },
    "/detokenize": {"tokens": [70]},
    "/api/attention": {"text": "hello world"},
    "/api/losses": {"text": "hello world", "models": ["default"]},
    "/api/drawing": {"line": "yarn", "length": 64},
}


@pytest.fixture(scope="module")
def server():
    with running(real_engine()) as one:
        yield one


def refuse_constant(name):
    raise AssertionError(f"{name} in an answer")


def require_sane(reply):
    assert reply.status in (200, 400, 404, 409, 413), reply.body
    if reply.body.startswith(b"data:"):
        assert b'"server_error"' not in reply.body
        assert b"NaN" not in reply.body
    else:
        json.loads(reply.body, parse_constant=refuse_constant)


@pytest.mark.sampled(cases=10)
@pytest.mark.parametrize(("path", "field"), [(path, field) for path, fields in FIELDS.items() for field in fields])
def test_a_field_takes_or_refuses_every_value(server, path, field):
    for value in VALUES:
        fields = {name: json.dumps(plain) for name, plain in PLAIN[path].items() if name != field}
        if field == "max_tokens":
            fields["ignore_eos"] = "true"
        body = ",".join(f'"{name}": {text}' for name, text in {**fields, field: value}.items())
        require_sane(call(server, "POST", path, b"{" + body.encode() + b"}"))


@pytest.mark.sampled(cases=13)
@pytest.mark.parametrize("temperature", ["5e-324", "1e-320", "1e-308", "1e-45", "1e-38", "1e-30", "1e-12"])
@pytest.mark.parametrize("more", [{}, {"top_k": 5}, {"top_p": 1e-308}, {"top_p": 0.9, "top_k": 10**6}])
def test_a_tiny_temperature_takes_the_likeliest_token(server, temperature, more):
    asked = {"prompt": "import os", "max_tokens": 5, "seed": 1, "logprobs": 2, **more}
    body = json.dumps(asked)[:-1] + f', "temperature": {temperature}' + "}"
    got = call(server, "POST", "/v1/completions", body.encode())
    expected = call(server, "POST", "/v1/completions", {**asked, "temperature": 0})
    require_sane(got)
    assert got.json()["choices"] == expected.json()["choices"]


@pytest.mark.parametrize("rule", ["nbce", "mean_pooling", "max_pooling"])
@pytest.mark.parametrize("beta", ["0", "1e-320", "1e30", "1e38", "1e300", "1e308", "1" + "0" * 150])
def test_rules_of_decoding_take_or_refuse_every_beta(server, rule, beta):
    asked = {"prompt": "x", "max_tokens": 3, "contexts": ["a", "b"], "decoding": f"{rule}:beta={beta}", "logprobs": 2}
    for stream in (False, True):
        require_sane(call(server, "POST", "/v1/completions", {**asked, "stream": stream}))
