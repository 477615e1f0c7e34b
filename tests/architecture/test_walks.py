"""The five ways through the house: every file in which a Python function runs on one is listed in DESIGN.md.

A list may get shorter; a longer one needs a reason.
"""

import re
import threading

import pytest
import torch
from measured_folder import small_folder

import ropewalk as rw

from architecture.tree import PACKAGE, Walk, visited
from hf.models import tiny
from serve.conftest import call, client_of, running
from serve.generation.small_engine import real_engine

DESIGN = (PACKAGE.parent / "DESIGN.md").read_text()
LONGEST = {"Extend": 30, "One token": 16, "Compare": 78, "Export": 38, "A request": 39, "Its tokens": 23}  # files
LINE = "rerope:window=8+log_n"


def listed(way: str) -> set[str]:
    """The files that DESIGN.md lists for a way: `hf/{loading,use/save}.py` are two."""
    words = re.search(rf"\*\*{way}\.\*\*.*?\nFiles: (.*?)\n\n", DESIGN, re.DOTALL)
    files = set()
    for name in re.findall(r"`([^`]+)`", words[1]):
        folder, names = re.fullmatch(r"(.*?)(?:\{(.*)\})?", name).groups()
        files |= {f"{folder}{one}.py" for one in names.split(",")} if names else {f"{folder}.py"}
    return files


def require_listed(way: str, files: set[str]) -> None:
    assert files <= listed(way), f"DESIGN.md lacks {sorted(files - listed(way))} on the way {way!r}"


@pytest.fixture
def model():
    rw.extend(tiny("llama"), "yarn:factor=4")  # imports all that is needed, as does naming it
    assert rw.export
    return tiny("llama").eval()


def test_extend(model):
    require_listed("Extend", visited(lambda: rw.extend(model, "yarn", target_len=2048)))


@torch.no_grad()
def test_one_token(model):
    rw.extend(model, LINE, target_len=2048)
    cache = model(torch.arange(3, 60)[None], use_cache=True).past_key_values
    token = torch.tensor([[5]])
    model(token, past_key_values=cache, use_cache=True)
    require_listed("One token", visited(lambda: model(token, past_key_values=cache, use_cache=True)))


def test_compare(tmp_path):
    place = small_folder(tmp_path)

    def compare():
        how = {"lengths": [64], "samples": 2, "tasks": "context", "corpus": f"folder:{place / 'texts'}"}
        rw.compare(str(place / "model"), ["yarn"], **how, options=rw.RunOptions(progress=False))

    compare()  # imports all that is needed
    require_listed("Compare", visited(compare))


@pytest.mark.filterwarnings("ignore")
def test_export(model, tmp_path):
    rw.extend(model, LINE, target_len=2048)
    require_listed("Export", visited(lambda: rw.export(model, tmp_path / "out", target="vllm", target_len=2048)))


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


def test_one_request(served):
    server, walk = served
    walk.files = set()
    body = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 4, "ignore_eos": True}
    call(server, "POST", "/v1/chat/completions", body)  # imports all that is needed
    walk.open = True
    assert call(server, "POST", "/v1/chat/completions", body).status == 200
    walk.open = False
    require_listed("A request", walk.files)


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
    require_listed("Its tokens", walk.files)


def test_the_lists_are_of_files_that_are_there_and_only_get_shorter():
    assert {way: len(listed(way)) for way in LONGEST if len(listed(way)) > LONGEST[way]} == {}
    assert {name for way in LONGEST for name in listed(way) if not (PACKAGE / name).exists()} == set()


def test_the_ways_through_the_house_name_what_is_there():
    ways = re.sub(r"\nFiles: .*?\n\n", "\n\n", DESIGN[DESIGN.index("## Five ways") :], flags=re.DOTALL)
    named = re.findall(r"`([\w./]+(?:\.py|/\w+))`", ways)
    assert len(named) > 12
    assert [name for name in named if not (PACKAGE / name).exists()] == []
