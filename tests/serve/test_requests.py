"""Every field of a request, with its refusal."""

import pytest

from ropewalk.errors import RopewalkError
from ropewalk.serve.requests import HARMLESS, UNSUPPORTED, read_chat, read_completion

USER = {"role": "user", "content": "Hello"}

# A field, a wrong value, and what the message says; for completions and chats alike.
SHARED = [
    ("model", 5, "model must be text or nothing, got 5"),
    ("stream", 1, "stream must be true or false, got 1"),
    ("stream", "yes", "stream must be true or false"),
    ("n", 0, "n must be from 1 to 16, got 0"),
    ("n", 17, "from 1 to 16"),
    ("n", 1.5, "n must be a whole number"),
    ("n", True, "n must be a whole number"),
    ("n", 10**100, "n must be"),
    ("temperature", -1, "temperature must be from 0 to 2, got -1"),
    ("temperature", 2.1, "from 0 to 2"),
    ("temperature", "hot", "a number"),
    ("temperature", float("inf"), "a number"),
    ("temperature", [], "a number"),
    ("top_p", 0, "above 0 and at most 1"),
    ("top_p", 1.1, "above 0 and at most 1"),
    ("top_k", -1, "at least 0"),
    ("top_k", 1.0, "a whole number"),
    ("seed", 2**62, "at most 62 bits"),
    ("seed", "x", "a whole number"),
    ("stop", 5, "stop must be a list, each item text"),
    ("stop", [5], "each item text"),
    ("stop", [""], "texts of 1 to 1,000 characters"),
    ("stop", "", "texts of 1 to 1,000 characters"),
    ("stop", "x" * 1001, "texts of 1 to 1,000 characters"),
    ("stop", ["x"] * 17, "at most 16 texts"),
    ("max_tokens", -1, "at least"),
    ("max_tokens", "many", "a whole number"),
    ("max_tokens", 1e9, "a whole number"),
    ("ignore_eos", 1, "true or false"),
    ("session", 7, "text"),
    ("session", "../x", "letters, digits"),
    ("new_session", True, "new_session begins a session; name it by session"),
    ("new_session", "yes", "true or false"),
    ("contexts", "one", "a list, each item text"),
    ("stop", [5] * 100_000, "at most 16 texts, got '100,000 texts'"),
    ("contexts", [], "a list of at least one text"),
    ("contexts", [""], "texts that are not empty"),
    ("contexts", ["x"] * 65, "a list of at most 64 texts"),
    ("decoding", "nbce", "none were sent; send contexts"),
    ("stream_options", 5, "an object such as"),
    ("stream_options", {"include_usage": "yes"}, "true or false"),
    ("stream_options", {"usage": True}, "stream_options has no parameter 'usage'. It has: include_usage"),
    ("stream_options", {"include_usage": True}, "stream_options needs stream"),
    ("temprature", 1, "the request has no parameter 'temprature'; did you mean 'temperature'"),
    ("x" * 1000, 1, "has no parameter"),
]


def refusal(read, values):
    with pytest.raises(RopewalkError) as refused:
        read(values)
    return refused.value


@pytest.mark.parametrize(("field", "value", "message"), SHARED)
@pytest.mark.parametrize(("read", "rest"), [(read_completion, {"prompt": "x"}), (read_chat, {"messages": [USER]})])
def test_wrong_values_are_refused_in_a_sentence(read, rest, field, value, message):
    error = refusal(read, {**rest, field: value})
    assert message in str(error)
    assert len(str(error)) < 1200


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "prompt is missing; send a text"),
        ({"prompt": None}, "prompt is missing"),
        ({"prompt": 5}, "prompt must be a text, a list of texts"),
        ({"prompt": []}, "prompt must be a text, a list of texts"),
        ({"prompt": [[]]}, "prompt must be"),
        ({"prompt": [[], [5]]}, "prompt must be"),
        ({"prompt": ["x", 5]}, "prompt must be"),
        ({"prompt": [True]}, "prompt must be"),
        ({"prompt": [1.0]}, "prompt must be"),
        ({"prompt": ["x"] * 65}, "at most 64 prompts"),
        ({"prompt": "x", "logprobs": 21}, "from 0 to 20"),
        ({"prompt": "x", "logprobs": True}, "a whole number"),
        ({"prompt": "x", "echo": 1}, "true or false"),
        ({"prompt": "x", "max_tokens": 0}, "at least 1 without echo"),
        ({"prompt": ["x", "y"], "contexts": ["c"]}, "must be one text, the question"),
        ({"prompt": [5], "contexts": ["c"]}, "must be one text, the question"),
        ({"prompt": "x", "contexts": ["c"], "echo": True}, "echo is not supported with contexts"),
        ({"prompt": "x", "messages": []}, "no parameter 'messages'"),
        ({"prompt": "x", "top_logprobs": 1}, "no parameter 'top_logprobs'; did you mean 'logprobs'"),
    ],
)
def test_what_is_wrong_with_a_completion(values, message):
    assert message in str(refusal(read_completion, values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "messages is missing"),
        ({"messages": []}, "a list of messages, at least one"),
        ({"messages": "Hello"}, "a list of messages"),
        ({"messages": [USER] * 10_001}, "at most 10,000 messages"),
        ({"messages": ["Hello"]}, "messages[0] must be an object such as"),
        (
            {"messages": [{"content": "x"}]},
            "messages[0].role must be one of system, developer, user, assistant, got None",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "got 'tool'"),
        ({"messages": [{"role": [], "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content must be text, or a list of parts of type text"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0].type must be text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "got 'image_url'"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text must be text"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}]}, "has no 'y'"),
        ({"messages": [{**USER, "name": 5}]}, "messages[0].name must be text"),
        ({"messages": [{**USER, "tool_calls": [1]}]}, "no parameter 'tool_calls'"),
        ({"messages": [{**USER, "nmae": "x"}]}, "did you mean 'name'"),
        ({"messages": [USER], "max_tokens": 0}, "at least 1"),
        ({"messages": [USER], "max_tokens": 5, "max_completion_tokens": 6}, "send one of them"),
        ({"messages": [USER], "logprobs": 1}, "true or false"),
        ({"messages": [USER], "logprobs": True, "top_logprobs": 21}, "from 0 to 20"),
        ({"messages": [USER], "top_logprobs": 1}, "top_logprobs needs logprobs"),
        ({"messages": [{"role": "assistant", "content": "x"}], "contexts": ["c"]}, "must be the user's question"),
        ({"messages": [USER], "echo": True}, "no parameter 'echo'"),
    ],
)
def test_what_is_wrong_with_a_chat(values, message):
    assert message in str(refusal(read_chat, values))


WRONG = {
    "best_of": 2,
    "suffix": "end",
    "logit_bias": {"5": 1},
    "repetition_penalty": 1.1,
    "min_tokens": 3,
    "tools": [{"type": "function"}],
    "tool_choice": "required",
    "functions": [{}],
    "function_call": {"name": "f"},
    "response_format": {"type": "json_object"},
    "modalities": ["audio"],
    "stop_token_ids": [5],
}
NEUTRAL = {
    "best_of": 1,
    "suffix": "",
    "logit_bias": {},
    "presence_penalty": 0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_p": 0,
    "min_tokens": 0,
    "tools": [],
    "tool_choice": "none",
    "functions": [],
    "function_call": "none",
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "stop_token_ids": [],
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_named_and_never_ignored(name):
    values = {"prompt": "x", name: WRONG.get(name, 0.5)}
    assert str(refusal(read_completion, values)) == f"{name} is not supported here; leave it out"
    for neutral in (None, NEUTRAL.get(name)):
        assert read_completion({"prompt": "x", name: neutral}) == read_completion({"prompt": "x"})


def test_neither_true_nor_false_is_a_penalty_of_one_or_zero():
    assert "not supported" in str(refusal(read_completion, {"prompt": "x", "best_of": True}))
    assert "not supported" in str(refusal(read_completion, {"prompt": "x", "presence_penalty": False}))


def test_what_is_harmless_is_accepted():
    values = dict.fromkeys(HARMLESS, "anything")
    assert read_chat({"messages": [USER], **values}) == read_chat({"messages": [USER]})


def test_null_is_the_default():
    every = [field for field, _, _ in SHARED if len(field) < 100 and field != "temprature"]
    assert read_chat({"messages": [USER], **dict.fromkeys(every)}) == read_chat({"messages": [USER]})
