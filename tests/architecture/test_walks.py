"""How many files a reader opens to follow one call: those in which a Python function runs. The numbers only go down."""

import re
import threading

import pytest
import torch

import ropewalk as rw

from architecture.tree import PACKAGE, Walk, visited
from hf.models import tiny
from serve.conftest import call, client_of, running
from serve.generation.small_engine import real_engine

EXTEND, TOKEN, EXPORT = 27, 16, 34
REQUEST, SERVED_TOKEN = (38, 11), (23, 7)  # files in all, and those of them that are the server's own
LINE = "rerope:window=8+log_n"


@pytest.fixture
def model():
    rw.extend(tiny("llama"), "yarn:factor=4")  # imports all that is needed, as does naming it
    assert rw.export
    return tiny("llama").eval()


def test_extend(model):
    files = visited(lambda: rw.extend(model, "yarn", target_len=2048))
    assert len(files) <= EXTEND, sorted(files)


@torch.no_grad()
def test_one_token(model):
    rw.extend(model, LINE, target_len=2048)
    cache = model(torch.arange(3, 60)[None], use_cache=True).past_key_values
    token = torch.tensor([[5]])
    model(token, past_key_values=cache, use_cache=True)
    files = visited(lambda: model(token, past_key_values=cache, use_cache=True))
    assert len(files) <= TOKEN, sorted(files)


@pytest.mark.filterwarnings("ignore")
def test_export(model, tmp_path):
    rw.extend(model, LINE, target_len=2048)
    files = visited(lambda: rw.export(model, tmp_path / "out", target="vllm", target_len=2048))
    assert len(files) <= EXPORT, sorted(files)


@pytest.fixture(scope="module")
def served():
    """A server, and what walks through its threads."""
    walk = Walk()
    threading.setprofile(walk)
    try:
        with running(real_engine()) as server:
            yield server, walk
    finally:
        threading.setprofile(None)


def count(files):
    return len(files), sum(name.startswith("serve/") for name in files)


def test_one_request(served):
    server, walk = served
    walk.files = set()
    body = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 4, "ignore_eos": True}
    call(server, "POST", "/v1/chat/completions", body)  # imports all that is needed
    walk.open = True
    assert call(server, "POST", "/v1/chat/completions", body).status == 200
    walk.open = False
    assert all(map(int.__le__, count(walk.files), REQUEST)), (count(walk.files), sorted(walk.files))


def test_one_token_of_a_request(served):
    """From the second token on, until it stands in the stream."""
    server, walk = served
    walk.files = set()
    asked = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 400}
    stream = client_of(server).chat.completions.create(
        model="default", stream=True, extra_body={"ignore_eos": True}, **asked
    )
    for number, _ in enumerate(stream):
        walk.open = 1 < number < 20
    assert all(map(int.__le__, count(walk.files), SERVED_TOKEN)), (count(walk.files), sorted(walk.files))


def test_the_ways_through_the_house_name_what_is_there():
    page = (PACKAGE.parent / "DESIGN.md").read_text()
    ways = page[page.index("## Five ways") :]
    named = re.findall(r"`([\w./]+(?:\.py|/\w+))`", ways)
    assert len(named) > 12
    assert [name for name in named if not (PACKAGE / name).exists()] == []
