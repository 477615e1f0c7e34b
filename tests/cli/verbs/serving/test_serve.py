"""`ropewalk serve`: what it refuses, and one real server from start to signal."""

import json
import re
import shutil
import signal
import sys
import threading
import time
from contextlib import closing
from http.client import HTTPConnection

import openai
import pytest

from ropewalk.cli.main import run
from ropewalk.cli.verbs.serving.engine import name_of
from ropewalk.cli.verbs.serving.serve import byte_size, is_loopback
from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import split_list
from ropewalk.models import DEFAULT
from ropewalk.serve.server import bind

from real_server import Server


@pytest.mark.sampled(cases=7)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines call the server, and there is no --api-key; pass"),
        (["no/such/folder/here"], "model must be an existing folder"),
        (["--to", "many"], "--to must be"),
        (["--dtype", "int8"], "there is no dtype 'int8'. Known: auto, float32, bfloat16, float16"),
        (["--cache-memory", "lots"], "--cache-memory must be a size above 0 such as 4GiB"),
        (["--port", "70000"], "--port"),
        (["--max-running", "0"], "--max-running"),
        (["--max-waiting", "-1"], "--max-waiting"),
        (["--drain", "-1"], "--drain"),
        (["--host", "no.such.host.invalid", "--insecure"], "free to be bound"),
        (["default", "yarnn"], "did you mean 'yarn'"),
        (["default", "yarn"], "factor"),
        (["--device", "cuda:99"], "--device must be a device that torch has here"),
    ],
)
def test_what_is_refused(arguments, message, capsys, monkeypatch):
    monkeypatch.delenv("ROPEWALK_API_KEY", raising=False)
    assert run(["serve", *arguments, *([] if "--port" in arguments else ["--port", "0"])]) == 2
    assert message in capsys.readouterr().err


def test_without_the_packages_the_way_to_them_is_named(capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("ropewalk.serve.server", "uvicorn", "fastapi"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run(["serve", "--port", "0"]) == 2
    assert "in a checkout of Ropewalk, pip install '.[serve]' -c constraints.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 * 2**30), ("512mib", 2**29), ("1.5G", 3 * 2**29), ("1000", 1000), ("2 KB", 2048)]
)
def test_sizes_are_read(text, size):
    assert byte_size(text, "--cache-memory") == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1e9", "4 apples", "9" * 30])
def test_what_is_no_size(text):
    with pytest.raises(InvalidValue, match="--cache-memory"):
        byte_size(text, "--cache-memory")


def test_loopback():
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")] == [False] * 5


def test_lines_are_separated_at_commas_between_them():
    line = "yarn:factor=4,beta_fast=32,rerope+log_n,longrope:short_factors=[1,2],bare"
    assert split_list(line, "--extensions") == [
        "yarn:factor=4,beta_fast=32",
        "rerope+log_n",
        "longrope:short_factors=[1,2]",
        "bare",
    ]


def test_models_are_called_by_their_name(tmp_path):
    assert name_of(str(DEFAULT)) == "default"
    assert name_of(str(tmp_path)) == tmp_path.name
    assert name_of("owner/model") == "owner/model"


@pytest.fixture(scope="module")
def server():
    one = Server(
        "--port", "0", "--extensions", "yarn:factor=4", "--extensions", "streaming", "--api-key", "secret"
    ).ready()
    yield one
    assert one.end() == (0, "", "")


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret", max_retries=0) as one:
        yield one


def test_one_line_says_that_it_is_ready(server):
    assert re.fullmatch(r"Ropewalk serves default \(rerope\+log_n\) on http://127\.0\.0\.1:\d+\n", server.line)


def test_the_models_are_those_of_the_command(client):
    names = [model.id for model in client.models.list().data]
    assert sorted(names) == [f"default@{line}" for line in ("bare", "rerope+log_n", "streaming", "yarn:factor=4")]
    assert names[0] == "default@rerope+log_n"


def test_a_model_answers_and_streams_the_same(client):
    asked = {"prompt": "import os\nimport ", "max_tokens": 8, "temperature": 0}
    for model in ("default", "default@bare", "default@streaming"):
        whole = client.completions.create(model=model, **asked)
        streamed = client.completions.create(model=model, stream=True, **asked)
        assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text
        assert whole.usage.completion_tokens <= 8


def test_what_an_extension_does_not_carry_is_refused(client):
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=r"the text has 600 tokens .*; bare carries 512"):
            client.completions.create(model="default@bare", prompt=[5] * 600, stream=stream)
    done = client.completions.create(model="default@yarn:factor=4", prompt=[5] * 600, max_tokens=1)
    assert done.usage.prompt_tokens == 600


def test_a_session_goes_on_and_forgets(client):
    extra = {"extra_body": {"session": "chat"}}
    for turn in range(3):
        asked = {"extra_body": {"session": "chat", "new_session": turn == 0}}
        done = client.completions.create(model="default@streaming", prompt=[70] * 400, max_tokens=2, **asked)
    assert done.usage.session["tokens"] == 3 * 402
    assert done.usage.session["forgotten_tokens"] > 600
    with pytest.raises(openai.BadRequestError, match="cannot continue under"):
        client.completions.create(model="default@bare", prompt="x", stream=True, **extra)
    assert client.delete("/sessions/chat", cast_to=object)["deleted"]


def test_contexts_answer_together(client):
    extra = {"contexts": ["The code is 7. ", "The sky is blue. "], "decoding": "mean_pooling"}
    done = client.completions.create(
        model="default", prompt="The code is", max_tokens=3, temperature=0, extra_body=extra
    )
    assert done.usage.completion_tokens > 0


def test_losses_and_attention_for_the_page(server):
    text = "import os\nimport sys\n"
    shown = post(server, "/api/losses", {"text": text, "models": ["default@bare", "default@streaming"]})
    assert "".join(shown["tokens"]) == text
    bare, streaming = shown["losses"].values()
    assert bare[0] is None
    assert len(bare) == len(shown["tokens"])
    assert bare[1:] == pytest.approx(streaming[1:], abs=1e-4)  # a short text is within the window
    weights = post(server, "/api/attention", {"text": text, "layer": 2, "head": 1})["weights"]
    assert [sum(row) for row in weights] == pytest.approx([1] * len(weights), abs=1e-3)


def test_who_leaves_is_not_answered(server, client):
    stream = client.completions.create(model="default@streaming", prompt="x", max_tokens=100_000, stream=True)
    for _ in zip(range(3), stream, strict=False):
        pass
    assert figure(server, "ropewalk_running") == 1
    stream.close()
    end = time.monotonic() + 10
    while figure(server, "ropewalk_running") and time.monotonic() < end:
        time.sleep(0.05)
    assert figure(server, "ropewalk_running") == 0


def test_many_at_once(client):
    texts, asked = {}, {"prompt": "def ", "max_tokens": 12, "temperature": 0}

    def ask(number):
        model = ("default", "default@bare", "default@streaming")[number % 3]
        texts[number] = client.completions.create(model=model, **asked).choices[0].text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(texts.values()) == {client.completions.create(model="default@bare", **asked).choices[0].text}


def figure(server, name):
    text = asked(server, "GET", "/metrics").decode()
    return float(re.search(rf"^{name} (\S+)", text, re.MULTILINE)[1])


def post(server, path, body):
    return json.loads(asked(server, "POST", path, json.dumps(body)))


def asked(server, method, path, body=None):
    headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
    with closing(HTTPConnection(server.url.removeprefix("http://"), timeout=60)) as connection:
        connection.request(method, path, body, headers)
        return connection.getresponse().read()


@pytest.mark.nightly
def test_a_signal_lets_answers_finish_and_ends_with_status_0():
    one = Server("default", "streaming", "--port", "0", ROPEWALK_API_KEY="from-the-environment").ready()
    with openai.OpenAI(base_url=f"{one.url}/v1", api_key="from-the-environment", max_retries=0) as client:
        stream = client.completions.create(
            model="default", prompt="x", max_tokens=40, stream=True, extra_body={"ignore_eos": True}
        )
        chunks = [next(iter(stream))]
        one.process.send_signal(signal.SIGTERM)
        chunks += list(stream)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert one.process.wait(30) == 0
    assert one.process.communicate() == ("", "")


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGTERM, (0, "", "")), (signal.SIGINT, (130, "", "ropewalk: stopped\n"))]
)
def test_a_signal_ends_it_while_it_loads(number, expected):
    with bind("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    one = Server("--port", str(port))
    while health(port) is None:
        assert one.process.poll() is None
        time.sleep(0.1)
    assert health(port) == {"status": "loading"}
    assert one.end(number) == expected


def health(port):
    """What the server says of itself; nothing before it is bound."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        try:
            connection.request("GET", "/health")
        except ConnectionRefusedError:
            return None
        return json.loads(connection.getresponse().read())


@pytest.mark.nightly
def test_a_server_that_has_started_again_says_that_a_session_is_not_there(tmp_path):
    """It was told `My dog is called Rex`, was killed, and would answer without it."""
    shutil.copytree(DEFAULT, tmp_path / "chatty", ignore=shutil.ignore_patterns("*.md"))
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"
    (tmp_path / "chatty" / "chat_template.jinja").write_text(template)
    line = [str(tmp_path / "chatty"), "streaming", "--port", "0"]

    def say(client, text, **more):
        asked = {"model": "chatty", "messages": [{"role": "user", "content": text}], "max_tokens": 3}
        return client.chat.completions.create(**asked, extra_body={"session": "dog", **more}).usage

    for number in (signal.SIGKILL, signal.SIGTERM):
        one = Server(*line).ready()
        with openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError, match="ended with its server; begin it with new_session"):
                say(client, "What is my dog called?")
            first = say(client, "My dog is called Rex.", new_session=True)
            second = say(client, "What is my dog called?")
            assert second.session["tokens"] == first.session["tokens"] + second.total_tokens
        one.end(number)
