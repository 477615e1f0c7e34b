"""Configs that would take hours, or that transformers stumbles over, are refused in one sentence."""

import json
import shutil
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk import Unreadable
from ropewalk.hf.checkpoint.fetch import LAYERS, NUMBERS, fetch_config, fetch_model, fetch_tokenizer

DEFAULT = Path(rw.__file__).parent / "models" / "default"


def changed(tmp_path, **values):
    shutil.copytree(DEFAULT, tmp_path / "model", dirs_exist_ok=True)
    config = json.loads((DEFAULT / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, **values}))
    return tmp_path / "model"


@pytest.mark.parametrize("load", [fetch_config, fetch_model])
def test_no_model_has_ten_million_layers(tmp_path, load):
    for name in LAYERS:
        for values in ({name: 10_000_000}, {"text_config": {name: 10_000_000}}):
            with pytest.raises(Unreadable, match=f"at most 10,000 layers, got '{name} 10,000,000'; correct its config"):
                load(changed(tmp_path, **values))


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("load", [fetch_config, fetch_model])
@pytest.mark.parametrize("wrong", ["4", [4], {"of": 4}])
def test_a_number_of_the_rotation_is_no_text(tmp_path, wrong, load):
    for name in NUMBERS:
        for parts in ({name: wrong}, {"full_attention": {name: wrong}}):
            for key in ("rope_parameters", "rope_scaling"):
                place = changed(tmp_path, **{key: {"rope_type": "linear", "factor": 4.0, **parts}})
                with pytest.raises(Unreadable, match=f"{name} of the rotation is a number, got .*; correct its config"):
                    load(place)


def test_numbers_and_nothing_are_read(tmp_path):
    rope = {"rope_type": "yarn", "rope_theta": 10_000, "factor": 4, "attention_factor": None}
    place = changed(tmp_path, rope_parameters={**rope, "original_max_position_embeddings": 128})
    assert fetch_config(place).num_hidden_layers == 6
    assert fetch_tokenizer(place)
