"""The model that Ropewalk carries: what its card says of it."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.evaluation.subject import Subject
from ropewalk.evaluation.tasks import Context, Passkey
from ropewalk.models import DEFAULT

TRAINED = 512


@pytest.fixture(scope="module")
def carried():
    model = AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=torch.float32).eval()
    return Subject(model=model, tokenizer=AutoTokenizer.from_pretrained(DEFAULT), corpus="stdlib", longest=2 * TRAINED)


def mean_of(subject, task, length, name):
    return task.condense([task.measure(subject, length, sample) for sample in range(task.samples)])[name].value


def test_it_is_a_small_standard_llama():
    config = json.loads((DEFAULT / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == TRAINED
    assert config["rope_parameters"] == {"rope_theta": 10000.0, "rope_type": "default"}
    assert sum(path.stat().st_size for path in DEFAULT.iterdir()) < 16 * 2**20
    count = sum(each.numel() for each in load_file(DEFAULT / "model.safetensors").values())
    assert 5e6 < count < 8e6


def test_it_finds_pass_keys_within_its_length_at_every_depth(carried):
    """The card has the share of many; ten show that it is no chance."""
    assert mean_of(carried, Passkey(samples=10), TRAINED, "right") >= 0.9


def test_bare_it_breaks_beyond_and_extended_it_does_not(carried):
    task = Context(samples=4)
    within = mean_of(carried, task, TRAINED, "loss")
    beyond = mean_of(carried, task, 2 * TRAINED, "loss")
    with rw.extended(carried.model, "rerope:window=256+log_n"):
        extended = mean_of(carried, task, 2 * TRAINED, "loss")
    assert beyond > within + 0.5
    assert extended < within + 0.05


def test_its_card_says_how_it_was_made():
    card = (DEFAULT / "README.md").read_text()
    assert re.search(r"ropewalk train pretrain", card)
    for word in ("tokens", "hours", "held-out", "limits"):
        assert word in card.lower()
