"""A signal while a training saves its last checkpoint or its model: that becomes whole, and nothing else begins."""

import signal

import pytest

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.train.checkpoints import last_checkpoint
from ropewalk.train.recipes import long_instruct as instructing
from ropewalk.train.recipes.listing import recipes
from ropewalk.train.small_models import ModelShape, new_small_model

from train.recipes.scripted import Scripted
from train.signals import heard, sending, trainings
from train.texts import folder_of, tokenizer

SHAPE = {"vocabulary": 300, "width": 32, "inner": 48, "layers": 2, "heads": 2, "trained_len": 32}
SETTINGS = {
    "pretrain": {**SHAPE},
    "carry_on": {"extension": "rerope:window=16", "length": 64, "lora": 2},
    "drope": {},
    "uptrain_gqa": {"kv_heads": 1},
    "long_instruct": {"extension": "yarn", "length": 128, "passage": 32},
}


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A recipe's command; what it prints is no matter here."""
    monkeypatch.setattr(instructing, "asker", lambda model, tokenizer: Scripted())
    shape = ModelShape(**SHAPE)
    new_small_model(shape, end=tokenizer().eos_token_id).save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    corpus = folder_of(tmp_path / "texts", count=240, words=300)

    def of(name):
        from_a_model = {"model": tmp_path / "base"} if name != "pretrain" else {}
        values = {"corpus": corpus, "steps": 2, "rows": 2, "progress": "false", **from_a_model, **SETTINGS[name]}
        parts = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        return ["train", name, "--out", str(tmp_path / "out"), *parts]

    return of


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("moment", ["checkpoint", "model"])
@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_being_saved_is_saved_and_nothing_else_begins(name, moment, command, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    number = signal.SIGTERM if moment == "model" else signal.SIGINT
    begun, sent = trainings(monkeypatch), sending(number, monkeypatch, moment)
    with heard():
        assert run(command(name)) == 130
    assert sent == [number]
    assert len(begun) == 1
    assert last_checkpoint(tmp_path / "out") is not None
    rw.load(tmp_path / "out" / "model")
    assert signal.getsignal(signal.SIGTERM) is before
    if moment == "model" and name == "pretrain":
        assert run(command(name)) == 0


def test_every_recipe_is_tried():
    """But one that trains no weights, by no Trainer: test_retrieval_heads.py stops it."""
    assert {*SETTINGS, "retrieval_heads"} == set(recipes())
