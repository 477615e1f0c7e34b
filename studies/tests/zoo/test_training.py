"""Models of the zoo that are trained on: with longer rows from some step on, and with fewer key heads."""

import json

import pytest
from safetensors.torch import load_file

import ropewalk as rw
from ropewalk.errors import InvalidValue
from ropewalk.train.small_models import ModelShape
from ropewalk.train.train import TrainingPlan

from studies.zoo import training
from studies.zoo.methods import METHODS, TRAINED
from studies.zoo.settings import ZooSettings
from studies.zoo.zoo import zoo
from train.texts import folder_of

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=16)


def run(path, methods, *, rows=8, steps=5):
    corpus = folder_of(path / "texts", count=60, words=200)
    plan = TrainingPlan(steps=steps, rows=rows, progress=False, save_every=1)
    return zoo(path / "zoo", ZooSettings(plan=plan, shape=SHAPE, methods=methods, seeds=1, texts=2, corpus=corpus))


def test_rows_become_longer_and_the_base_larger(tmp_path):
    run(tmp_path, "longer_from_0,longer_from_40")
    for name, stages in {"longer_from_0": [[5, 128, 5e5]], "longer_from_40": [[2, 16, None], [5, 128, 5e5]]}.items():
        place = tmp_path / "zoo" / "models" / f"{name}-0"
        plan = json.loads((place / "plan.json").read_text())
        assert plan["course"] == stages
        assert plan["rows"] == 1  # of 128 tokens: as many a step as eight of 16
        config = rw.load(place / "model").config
        assert config.rope_parameters["rope_theta"] == 5e5
        assert config.max_position_embeddings == 128


def test_batches_that_cannot_be_divided_into_longer_rows(tmp_path):
    with pytest.raises(InvalidValue, match="rows must be a multiple of 8, where rows become longer, got 4"):
        run(tmp_path, "longer_from_20", rows=4)


def test_key_heads_are_averaged_and_trained_a_little(tmp_path):
    run(tmp_path, "rope_to_1_kv_head,rope_with_2_kv_heads", steps=20)
    models = tmp_path / "zoo" / "models"
    assert sorted(place.name for place in models.iterdir()) == ["rope-0", "rope_to_1_kv_head-0"]
    plan = json.loads((models / "rope_to_1_kv_head-0" / "plan.json").read_text())
    assert plan["learning_rate"] == pytest.approx(TrainingPlan(steps=1).learning_rate / 3)
    few = rw.load(models / "rope_to_1_kv_head-0" / "model")
    assert few.config.num_key_value_heads == 1
    name = "model.layers.0.self_attn.k_proj.weight"
    before = load_file(models / "rope-0" / "model" / "model.safetensors")[name].unflatten(0, (4, 8)).mean(0)
    after = few.state_dict()[name]
    assert 0 < float((after - before).abs().max()) < 0.01  # one step of training
    measured = {m["method"]: m for m in json.loads((tmp_path / "zoo" / "zoo.json").read_text())["models"]}
    losses = [measured[name]["figures"][0]["loss"] for name in ("rope", "rope_with_2_kv_heads", "rope_to_1_kv_head")]
    assert len(set(losses)) == 3


def test_marked_models_have_more_steps(tmp_path, monkeypatch):
    """A marker needs them to become a sink."""
    steps = {}
    monkeypatch.setattr(training, "pretrain", lambda place, settings, **_: steps.update({place: settings.plan.steps}))
    settings = ZooSettings(plan=TrainingPlan(steps=5), shape=SHAPE)
    for name in ("rope", "marked"):
        training.train_method(name, tmp_path, settings)
    assert list(steps.values()) == [5, 20]


@pytest.mark.parametrize("name", METHODS)
def test_what_is_needed_is_trained_itself(name):
    needed = METHODS[name].needs
    assert not needed or (needed in TRAINED and not METHODS[needed].needs)
