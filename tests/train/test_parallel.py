"""Rows divided among processes: who may, and who is told why not before training begins."""

import pytest
import torch
from accelerate import ParallelismConfig

import ropewalk as rw
from ropewalk.errors import DoesNotFit
from ropewalk.train.data.packs import PackedRows, collate_items, row_of
from ropewalk.train.processes import check_rows, processes_per_row, require_divisible
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, arguments, train

from hf.models import tiny
from train.texts import tokenizer, tokens

PLAN = TrainingPlan(steps=2, rows=2, progress=False)
SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)


def rows(*lengths):
    return [row_of([torch.arange(length).numpy() for length in lengths])]


@pytest.mark.parametrize(("sizes", "parts"), [({}, 1), ({"cp_size": 2}, 2), ({"sp_size": 4}, 4), ({"tp_size": 2}, 1)])
def test_among_how_many(tmp_path, sizes, parts):
    assert processes_per_row(arguments(PLAN, tmp_path, parallelism_config=ParallelismConfig(**sizes))) == parts


def test_among_how_many_as_accelerate_launch_says(tmp_path, monkeypatch):
    assert processes_per_row(arguments(PLAN, tmp_path)) == 1
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", "2")
    assert processes_per_row(arguments(PLAN, tmp_path)) == 2


@pytest.mark.parametrize("extension", ["rerope:window=8", "alibi", "log_n", "dynamic_ntk", "randomized:limit=99"])
def test_attention_of_ours_is_refused_before_training(tmp_path, extension):
    packs, model = PackedRows(tokens(tmp_path, count=20), tokenizer(), length=32, count=50), new_small_model(SMALL)
    config = ParallelismConfig(cp_size=2)
    with (
        rw.extended(model, extension),
        pytest.raises(
            DoesNotFit,
            match=r"a static schedule under sdpa, where the tokens of a row are divided among processes.*fsdp",
        ),
    ):
        train(model, packs, PLAN, tmp_path / "run", parallelism_config=config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("extension", ["pi:factor=2", "yarn:factor=4", "abf:new_base=50000"])
def test_a_static_schedule_in_the_models_own_rotary_module_is_not_in_the_way(extension):
    model = tiny("llama", "sdpa")
    with rw.extended(model, extension):
        require_divisible(model, 2)


def test_models_own_attention(tmp_path):
    require_divisible(tiny("llama", "sdpa"), 2)
    require_divisible(tiny("llama", "eager"), 1)
    with pytest.raises(DoesNotFit, match="attn_implementation='sdpa'"):
        require_divisible(tiny("llama", "eager"), 2)


def test_rows_that_cannot_be_divided():
    collate = check_rows(collate_items, 2)
    assert collate(rows(16))["input_ids"].shape == (1, 16)
    with pytest.raises(DoesNotFit, match="one text each where rows are divided"):
        collate(rows(8, 8))
    with pytest.raises(DoesNotFit, match="a multiple of 4, where rows are divided among 2"):
        collate(rows(18))
    assert check_rows(collate_items, 1) is collate_items
