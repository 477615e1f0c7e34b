"""A signal while a training saves its last checkpoint or its model: that becomes whole, and nothing else begins."""

import os
import signal

import pytest
from transformers import PreTrainedModel, Trainer

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.lab.recipes import long_instruct as instructing
from ropewalk.lab.recipes.listing import recipes
from ropewalk.lab.small_models import ModelShape, fresh
from ropewalk.lab.training.train import last_checkpoint

from lab.recipes.test_recipes import Scripted
from lab.texts import folder_of, tokenizer

SHAPE = {"vocabulary": 300, "width": 32, "inner": 48, "layers": 2, "heads": 2, "trained_len": 32}
SETTINGS = {
    "pretrain": {**SHAPE},
    "carry_on": {"extension": "rerope:window=16", "length": 64, "lora": 2},
    "drope": {},
    "uptrain_gqa": {"kv_heads": 1},
    "long_instruct": {"extension": "yarn", "length": 128, "passage": 32},
    "zoo": {**SHAPE, "methods": "hwfa,rope", "texts": 2, "seeds": 2},
    "tuned": {"methods": "pi,yarn", "texts": 2, "passkeys": 1, "seeds": 2},
}
SEVERAL = ("zoo", "tuned")


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A recipe's command; what it prints is no matter here."""
    monkeypatch.setattr(instructing, "asker", lambda model, tokenizer: Scripted())
    shape = ModelShape(**SHAPE)
    fresh(shape, end=tokenizer().eos_token_id).save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    corpus = folder_of(tmp_path / "texts", count=240, words=300)

    def of(name):
        from_a_model = {"model": tmp_path / "base"} if name not in ("pretrain", "zoo") else {}
        values = {"corpus": corpus, "steps": 2, "rows": 2, "progress": "false", **from_a_model, **SETTINGS[name]}
        parts = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        return ["train", name, "--out", str(tmp_path / "out"), *parts]

    return of


@pytest.fixture
def begun(monkeypatch):
    """The trainings that began, by their folders."""
    folders, train = [], Trainer.train

    def training(trainer, *args, **kwargs):
        folders.append(trainer.args.output_dir)
        return train(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train", training)
    return folders


@pytest.fixture
def heard():
    """Tests in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def sending(number, monkeypatch, moment):
    """Send a signal once, in the middle of the last checkpoint or of the model."""
    sent, of_class, of_trainer = [], PreTrainedModel.save_pretrained, Trainer._save_checkpoint

    def send():
        if not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    def save_pretrained(model, place, *args, **kwargs):
        if moment == "model" and "checkpoint" not in str(place):
            send()
        return of_class(model, place, *args, **kwargs)

    def save_checkpoint(trainer, *args, **kwargs):
        if moment == "checkpoint" and trainer.state.global_step == trainer.state.max_steps:
            send()
        return of_trainer(trainer, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save_pretrained)
    monkeypatch.setattr(Trainer, "_save_checkpoint", save_checkpoint)
    return sent


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("moment", ["checkpoint", "model"])
@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_being_saved_is_saved_and_nothing_else_begins(name, moment, command, begun, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    number = signal.SIGINT if (name in SEVERAL) == (moment == "model") else signal.SIGTERM
    sent = sending(number, monkeypatch, moment)
    assert run(command(name)) == 130
    assert sent == [number]
    assert len(begun) == 1
    place = next((tmp_path / "out" / "models").iterdir()) if name in SEVERAL else tmp_path / "out"
    assert last_checkpoint(place) is not None
    rw.load(place / "model")
    assert not list((tmp_path / "out" / "measured").glob(f"{place.name}*"))
    assert signal.getsignal(signal.SIGTERM) is before
    if moment == "model" and name == "pretrain":
        assert run(command(name)) == 0


def test_every_recipe_is_tried():
    assert set(SETTINGS) == set(recipes())
