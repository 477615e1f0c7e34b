"""A model that was trained under an extension of its own: that is the line that all others are measured against."""

import json
import sqlite3

import pytest
import torch

from ropewalk import Extension, extend, extended, load, parse
from ropewalk.cli.main import run
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.train.small_models import ModelShape, new_small_model

from train.texts import folder_of, tokenizer

OWN = "hwfa_rerope:window=12,rerope_window=16,layers=3"
TRAINED = 32


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("own")
    model = new_small_model(ModelShape(vocabulary=300, width=32, inner=64, layers=3, heads=2, trained_len=TRAINED))
    for name, value in model.named_parameters():
        if "proj" in name:
            value.data *= 10
    extend(model, OWN)
    model.save_pretrained(path / "model")
    tokenizer().save_pretrained(path / "model")
    folder_of(path / "texts", count=40, words=200)
    return path


def called(place, *arguments):
    return run([*map(str, arguments), "--corpus", f"all:folder:{place / 'texts'}"])


def of_the_library(place, line):
    """Losses of the last tokens of the first passages, without anything of the command line."""
    model = load(place / "model")
    corpus = f"all:folder:{place / 'texts'}"
    ids = torch.stack(Subject(model=model, tokenizer=tokenizer(), corpus=corpus, longest=64).passages(2))
    handle_of(model).remove()
    with extended(model, line):
        return token_losses(model, ids)


@pytest.mark.nightly
def test_compare(place, tmp_path, capsys):
    given = ["--lengths", "64", "--samples", "2", "--tasks", "context,damage", "--workers", "1", "-o", tmp_path / "out"]
    assert called(place, "compare", place / "model", "yarn:factor=2", "rope", *given) == 0
    shown = capsys.readouterr().out
    assert "The base model was trained under window:window=12 (2 layers differ)." in " ".join(shown.split())
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    lines = {each["line"]: each for each in found["candidates"]}
    assert Extension.from_json(lines["bare"]["extension"]) == parse(OWN)
    assert Extension.from_json(lines["yarn:factor=2"]["extension"]) == parse(f"{OWN}+yarn:factor=2")
    losses = {
        (each["task"], line, each["length"]): [sample["loss"] for sample in each["samples"]]
        for line, own in lines.items()
        for each in own["rows"]
    }
    for line, whole in (("bare", OWN), ("yarn:factor=2", f"{OWN}+yarn:factor=2"), ("rope", OWN)):
        expected = of_the_library(place, whole).losses_bn[:, -TRAINED // 2 :].mean(1)
        assert losses["context", line, 64] == pytest.approx(expected.tolist(), rel=1e-4)
    assert losses["damage", "bare", TRAINED] == pytest.approx([0, 0], abs=1e-6)
    assert max(map(abs, losses["damage", "yarn:factor=2", TRAINED])) > 1e-3


def test_stream(place, tmp_path):
    given = ["--tokens", "64", "-o", tmp_path / "out"]
    assert called(place, "stream", place / "model", "yarn:factor=2", *given) == 0
    stored = json.loads(next((tmp_path / "out").glob("*.json")).read_text())
    assert Extension.from_json(stored["extension"]) == parse(f"{OWN}+yarn:factor=2")


@pytest.mark.nightly
def test_diagnose(place, tmp_path, capsys):
    given = ["--length", "64", "--texts", "2", "-o", tmp_path / "out"]
    assert called(place, "diagnose", place / "model", "yarn:factor=2", *given) == 0
    stored = json.loads(next((tmp_path / "out").glob("*.json")).read_text())
    sides = [Extension.from_json(side["extension"]) for side in stored["sides"]]
    assert sides == [parse(OWN), parse(f"{OWN}+yarn:factor=2")]


@pytest.mark.nightly
def test_fit(place, tmp_path, capsys):
    given = ["--to", "64", "--budget", "1s", "--samples", "2", "--judges", "2", "-o", tmp_path / "out", "--save"]
    assert called(place, "fit", place / "model", *given) == 0
    capsys.readouterr()
    advised = Extension.from_json((tmp_path / "out" / "extension.json").read_text())
    assert advised == advised.over(parse(OWN))  # what it was trained under is in it
    assert handle_of(load(tmp_path / "out" / "model")).extension == advised


@pytest.mark.parametrize("verb", ["generate", "extend"])
def test_one_line_is_put_over_it(verb, place, tmp_path, capsys):
    given = {
        "generate": ["--prompt", "w1", "--max-new-tokens", "4"],
        "extend": ["--to", "64", "-o", str(tmp_path / "out")],
    }
    assert run([verb, str(place / "model"), "yarn:factor=2", *given[verb]]) == 0
    if verb == "extend":
        assert handle_of(load(tmp_path / "out")).extension == parse(f"{OWN}+yarn:factor=2")


@pytest.mark.nightly
def test_another_that_it_was_trained_under_is_another_model(place, tmp_path):
    """Its numbers are measured anew."""
    given = ["--lengths", "64", "--samples", "2", "--tasks", "context", "--workers", "1", "-o", tmp_path / "out"]
    assert called(place, "compare", place / "model", "yarn:factor=2", *given) == 0

    def cells():
        with sqlite3.connect(tmp_path / "out" / "cells.sqlite") as file:
            return file.execute("select count(*) from cells").fetchone()[0]

    first = cells()
    stored = place / "model" / "ropewalk.json"
    before = stored.read_text()
    try:
        stored.write_text(before.replace('"window": 12', '"window": 11'))
        assert called(place, "compare", place / "model", "yarn:factor=2", *given) == 0
    finally:
        stored.write_text(before)
    assert cells() == 2 * first
