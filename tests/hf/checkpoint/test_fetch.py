"""Models in folders that are broken, or that bring code of their own."""

import builtins
import json
import shutil
from contextlib import suppress
from random import Random

import pytest
import torch

import ropewalk as rw
from ropewalk import Unreadable
from ropewalk.errors import NotInstalled, RopewalkError
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_model, fetch_tokenizer
from ropewalk.hf.load_options import LoadOptions

from hf.models import tiny
from hf.own_code import bringing_code
from hf.traces import logits

IDS = torch.arange(3, 60)[None]
DEEP, DIGITS = b"[" * 100_000, b'{"hidden_size": ' + b"9" * 5000 + b"}"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "plain"
    tiny("llama", num_hidden_layers=1).save_pretrained(place)
    return place


@pytest.mark.parametrize("content", [b"", b"garbage", b"[]", b"null", b"\xff", DEEP, DIGITS, None], ids=range(8))
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_files_that_are_none(plain, tmp_path, file, content):
    place = shutil.copytree(plain, tmp_path / "model")
    good = (place / file).read_bytes()
    (place / file).write_bytes(good[: len(good) // 2] if content is None else content)
    for read in (rw.load, rw.inspect) if file == "config.json" else (rw.load,):  # inspect reads no weights
        with pytest.raises(Unreadable, match=r"model must be (a causal model|one whose config)"):
            read(place)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": -64},
        {"hidden_size": "x"},
        {"hidden_size": None},
        {"hidden_size": 48},
        {"num_attention_heads": 0},
        {"model_type": "no_such_type"},
        {"model_type": []},
        {"rope_parameters": {"rope_type": "no_such_type"}},
        {"dtype": "no_such_type"},
        {"vocab_size": 50},
    ],
    ids=str,
)
def test_configs_that_say_what_is_not_so(plain, tmp_path, change):
    place = shutil.copytree(plain, tmp_path / "model")
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(RopewalkError):
        rw.load(place)
    with suppress(RopewalkError):  # of some it takes the weights to see that they are wrong
        rw.inspect(place)


def test_any_byte_of_a_config_may_be_another(plain, tmp_path):
    """It is read, or refused: nothing else comes out."""
    place, random = shutil.copytree(plain, tmp_path / "model"), Random(0)
    good, refused = (place / "config.json").read_bytes(), 0
    for _ in range(60):
        at = random.randrange(len(good))
        (place / "config.json").write_bytes(good[:at] + bytes([random.randrange(256)]) + good[at + 1 :])
        try:
            fetch_config(place)
        except RopewalkError:
            refused += 1
    assert refused > 10


NAMES = ["null\0byte", "half \ud800", "x" * 300, "/".join(["y" * 200] * 40), "~nobody-here/x", "", ".", "a/b/c", "-a/b"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("read", [rw.load, rw.inspect])
def test_names_of_no_model(tmp_path, monkeypatch, read, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unreadable, match=r"model must be an? (existing )?folder"):
        read(name)


def test_a_folder_without_a_tokenizer(plain):
    with pytest.raises(Unreadable, match="with a tokenizer beside its weights"):
        fetch_tokenizer(plain)


@pytest.fixture
def own_code(plain, tmp_path, monkeypatch):
    """A model that brings code of its own, and the file by which that says that it ran."""
    monkeypatch.setattr(builtins, "input", lambda *_: pytest.fail("asked on a terminal"))
    with bringing_code(plain, tmp_path, monkeypatch) as made:
        yield made


READS = [rw.load, rw.inspect, fetch_config, fetch_model, lambda place: rw.load(place, trust_remote_code=None)]


@pytest.mark.parametrize("read", READS)
def test_code_that_comes_with_a_model_is_not_run_and_nobody_is_asked(own_code, read):
    place, mark = own_code
    with pytest.raises(Unreadable, match=r"trust_remote_code=True, or --trust-remote-code"):
        read(place)
    assert not mark.exists()


def test_whoever_asks_for_it_has_it_run_and_can_save_it(own_code, tmp_path):
    place, mark = own_code
    model = rw.load(place, trust_remote_code=True)
    assert mark.exists()
    with rw.extended(model, "rerope:window=8"):
        expected = logits(model, IDS)
        rw.save(model, tmp_path / "saved")
    with pytest.raises(Unreadable, match="--trust-remote-code"):
        rw.load(tmp_path / "saved")
    trusting = LoadOptions(trust_remote_code=True)
    assert torch.equal(logits(rw.load(tmp_path / "saved", options=trusting), IDS), expected)
    assert type(rw.load(place, options=trusting)).__name__ == "OwnModel"
    with pytest.raises(Unreadable):
        rw.load(place, options=trusting, trust_remote_code=False)
    with pytest.raises(Unreadable):  # the next one asks for itself
        rw.load(place)


def test_a_package_that_a_model_asks_for_is_named(own_code):
    place, _ = own_code
    code = (place / "own.py").read_text()
    (place / "own.py").write_text(f"import no_such_package\n{code}")
    with pytest.raises((NotInstalled, Unreadable), match="no_such_package"):
        rw.load(place, trust_remote_code=True)
