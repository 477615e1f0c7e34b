"""How many files a reader opens to follow one call: those in which a Python function runs. The numbers only go down."""

import re

import pytest
import torch

import ropewalk as rw

from architecture.tree import PACKAGE, visited
from hf.models import tiny

EXTEND, TOKEN, EXPORT = 27, 16, 35
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


def test_the_ways_through_the_house_name_what_is_there():
    page = (PACKAGE.parent / "DESIGN.md").read_text()
    ways = page[page.index("## Five ways") :]
    named = re.findall(r"`([\w./]+(?:\.py|/\w+))`", ways)
    assert len(named) > 12
    assert [name for name in named if not (PACKAGE / name).exists()] == []
