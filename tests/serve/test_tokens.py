"""`/tokenize` and `/detokenize`."""

import pytest

from serve.conftest import call, running
from serve.fake_engine import TEMPLATE, FakeEngine

TEXT = "def main():\n    print('你好，世界 🎉')\n"


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine(template=TEMPLATE)) as one:
        yield one


def test_a_text_and_its_tokens(server):
    read = call(server, "POST", "/tokenize", {"model": "default", "prompt": TEXT}).json()
    assert read["tokens"] == server.engine.tokenizer(TEXT)["input_ids"]
    assert read["count"] == len(read["tokens"]) == len(read["strings"])
    assert "".join(read["strings"]) == TEXT
    assert call(server, "POST", "/detokenize", {"tokens": read["tokens"]}).json() == {"prompt": TEXT}


def test_a_character_of_several_tokens_belongs_to_the_last(server):
    read = call(server, "POST", "/tokenize", {"prompt": "你"}).json()
    assert read["count"] > 1
    assert read["strings"] == [""] * (read["count"] - 1) + ["你"]


def test_a_long_text_is_read_whole(server):
    long = TEXT * 1000
    assert "".join(call(server, "POST", "/tokenize", {"prompt": long}).json()["strings"]) == long


def test_a_conversation_is_read_as_the_template_writes_it(server):
    read = call(server, "POST", "/tokenize", {"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert "".join(read["strings"]) == "<user>Hi</user><assistant>"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/tokenize", {}, "either prompt or messages"),
        ("/tokenize", {"prompt": "x", "messages": []}, "either prompt or messages"),
        ("/tokenize", {"prompt": 5}, "prompt must be text, got 5"),
        ("/tokenize", {"messages": []}, "at least one"),
        ("/tokenize", {"prompt": "x", "model": 5}, "model must be text"),
        ("/tokenize", {"prompt": "x", "text": "y"}, "no parameter 'text'"),
        ("/detokenize", {}, "a list of token ids"),
        ("/detokenize", {"tokens": []}, "a list of token ids"),
        ("/detokenize", {"tokens": ["x"]}, "a list of token ids"),
        ("/detokenize", {"tokens": [5000]}, "from 0 to 2,047"),
    ],
)
def test_what_is_refused(server, path, body, message):
    refused = call(server, "POST", path, body)
    assert refused.status == 400
    assert message in refused.error["message"]


def test_an_unknown_model_is_refused(server):
    assert call(server, "POST", "/tokenize", {"prompt": "x", "model": "gpt"}).status == 404
    assert call(server, "POST", "/detokenize", {"tokens": [1], "model": "gpt"}).status == 404
