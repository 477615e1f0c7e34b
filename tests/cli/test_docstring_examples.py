"""The examples in the docstrings of the public names run."""

import inspect
import json
import textwrap

import pytest
import torch
from transformers import AutoTokenizer

import ropewalk as rw

from hf.models import tiny

NAMES = [
    *(
        "Extension",
        "Facts",
        "ape_stream",
        "check",
        "cite",
        "compare",
        "contrast_stream",
        "convert",
        "diagnose",
        "export",
        "extend",
        "extended",
        "inspect",
    ),
    pytest.param("fit", marks=pytest.mark.nightly),  # twenty seconds
    *("leaderboard", "load", "nbce_generate", "nbce_stream", "parse", "reference_attention", "save", "score", "stream"),
    "writing",
]


def example_of(name):
    blocks = inspect.getdoc(getattr(rw, name)).split("\n\n")
    return next(textwrap.dedent(block) for block in blocks if block.startswith("    "))


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(folder)
    (tmp_path / "extension.json").write_text(json.dumps(rw.parse("yarn:factor=4").to_json()))
    model, tokenizer = tiny("llama", num_hidden_layers=2), AutoTokenizer.from_pretrained(folder)
    if name == "load":
        rw.extend(tiny("llama", num_hidden_layers=2), "rerope:window=8").model.save_pretrained("model-32k")
    ids = torch.arange(3, 43)[None]
    exec(example_of(name), {"rw": rw, "torch": torch, "model": model, "tokenizer": tokenizer, "ids": ids})
