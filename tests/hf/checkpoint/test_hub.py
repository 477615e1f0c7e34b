"""A hub that does not answer is said as that, at once; what is in the cache needs none."""

import os
import subprocess
import sys
from time import monotonic

import pytest
import torch
from huggingface_hub import constants

import ropewalk as rw
from ropewalk import Unreadable
from ropewalk.hf.checkpoint import fetch
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_model, fetch_tokenizer
from ropewalk.models import DEFAULT

from hf.local_hub import asked, hanging, refusing, serving, unavailable
from hf.models import tiny
from hf.traces import logits

IDS = torch.arange(3, 60)[None]
SILENT = [hanging, refusing, unavailable]
ALLOWED = 8.0  # seconds on a busy machine; with the retries of huggingface_hub it takes 50 and more


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "plain"
    tiny("llama", num_hidden_layers=1).save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (place / name).write_bytes((DEFAULT / name).read_bytes())
    return place


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("read", [fetch_config, fetch_tokenizer, fetch_model, rw.load, rw.inspect])
def test_a_name_that_is_not_in_the_cache(monkeypatch, tmp_path, silent, read):
    monkeypatch.setattr(fetch, "HUB_TIMEOUT", 0.3)
    with silent() as address:
        asked(monkeypatch, address, tmp_path)
        began = monotonic()
        with pytest.raises(
            Unreadable, match=r"no network, or http://127.*, and owner/name is not in the cache.*folder"
        ):
            read("owner/name")
        assert monotonic() - began < ALLOWED


@pytest.mark.parametrize("silent", SILENT)
def test_a_model_in_the_cache_needs_no_network(monkeypatch, plain, tmp_path, silent):
    with serving(plain) as address:
        asked(monkeypatch, address, tmp_path)
        expected = logits(rw.load("owner/name"), IDS)
        fetch_tokenizer("owner/name")
    monkeypatch.setattr(fetch, "HUB_TIMEOUT", 0.3)
    with silent() as address:
        asked(monkeypatch, address, tmp_path)
        began = monotonic()
        assert torch.equal(logits(rw.load("owner/name"), IDS), expected)
        assert fetch_tokenizer("owner/name")("a word")["input_ids"]
        assert monotonic() - began < ALLOWED


def test_half_a_model_in_the_cache(monkeypatch, plain, tmp_path):
    with serving(plain) as address:
        asked(monkeypatch, address, tmp_path)
        fetch_config("owner/name")
    with refusing() as address:
        asked(monkeypatch, address, tmp_path)
        with pytest.raises(Unreadable, match=r"no network"):
            rw.load("owner/name")


def test_a_slow_hub_that_answers_is_waited_for(monkeypatch, plain, tmp_path):
    """Only the question whether it answers has the short limit."""
    monkeypatch.setattr(fetch, "HUB_TIMEOUT", 0.3)
    with serving(plain, delay=0.5) as address:
        asked(monkeypatch, address, tmp_path)
        assert fetch_config("owner/name").num_hidden_layers == 1


def test_a_name_that_the_hub_does_not_have_is_not_the_network(monkeypatch, tmp_path):
    with serving(tmp_path) as address:
        asked(monkeypatch, address, tmp_path / "cache")
        with pytest.raises(Unreadable) as refused:
            fetch_config("owner/name")
        assert "no network" not in str(refused.value)


def test_the_network_comes_back(monkeypatch, plain, tmp_path):
    with refusing() as address:
        asked(monkeypatch, address, tmp_path)
        with pytest.raises(Unreadable, match=r"no network"):
            fetch_config("owner/name")
        with serving(plain) as back:
            known = dict(fetch._KNOWN)
            asked(monkeypatch, back, tmp_path)
            monkeypatch.setattr(fetch, "_KNOWN", {back: known[address]} if address in known else {})
            assert fetch_config("owner/name").num_hidden_layers == 1


def test_offline_is_said_as_that(monkeypatch, tmp_path):
    with hanging() as address:
        asked(monkeypatch, address, tmp_path)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(Unreadable, match=r"HF_HUB_OFFLINE is set, and owner/name is not in the cache.*unset it"):
            fetch_config("owner/name")


def test_a_folder_asks_nobody(monkeypatch, plain, tmp_path):
    with hanging() as address:
        asked(monkeypatch, address, tmp_path)
        monkeypatch.setattr(fetch, "_ask", lambda _: pytest.fail("it was asked"))
        assert rw.load(plain) is not None


@pytest.mark.nightly
def test_the_command_line(tmp_path):
    with hanging() as address:
        surroundings = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": ""}
        command = [sys.executable, "-m", "ropewalk", "compare", "owner/name", "yarn"]
        run = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "owner/name is not in the cache" in run.stderr
    assert "Retrying" not in run.stderr
