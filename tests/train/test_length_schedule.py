"""The length schedule: which rows come when, what changes in the model, and resuming in the middle."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.train.data.packs import PackedRows, collate_items
from ropewalk.train.length_schedule import LengthSchedule, LengthStage, StageSwitch, set_base
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train

from hf.models import tiny
from train.texts import tokenizer, tokens
from train.watching import StopAt, losses

pytestmark = pytest.mark.nightly

SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=16)
PLAN = TrainingPlan(steps=8, rows=2, accumulate=2, save_every=50, log_every=1, progress=False)


def packs(path, length, count=400, seed=0):
    return PackedRows(tokens(path, count=20), tokenizer(), length=length, count=count, seed=seed)


def schedule(path, plan=PLAN, **more):
    return LengthSchedule(
        [LengthStage(0.75, packs(path, 16)), LengthStage(0.25, packs(path, 64, seed=1), 50_000.0)], plan, **more
    )


def test_tokens_per_batch_are_constant(tmp_path):
    rows = schedule(tmp_path)
    assert len(rows) == 8 * 2 * 2
    shapes = [tuple(collate_items([rows[n], rows[n + 1]])["input_ids"].shape) for n in range(0, len(rows), 2)]
    assert shapes == [(8, 16)] * 12 + [(2, 64)] * 4  # the switch is where step 6 begins: 6 steps of 2 batches


def test_every_row_of_a_stage_comes_once_and_in_order(tmp_path):
    rows, short, long = schedule(tmp_path), packs(tmp_path, 16), packs(tmp_path, 64, seed=1)
    items = [rows[n]["input_ids"] for n in range(len(rows))]
    assert torch.equal(torch.cat(items[:24]), torch.stack([short[n]["input_ids"] for n in range(96)]))
    assert torch.equal(torch.cat(items[24:]), torch.stack([long[n]["input_ids"] for n in range(8)]))
    with pytest.raises(IndexError):
        rows[32]


def test_more_processes_switch_at_the_same_step(tmp_path):
    rows = schedule(tmp_path, processes=3)
    assert [rows[n]["input_ids"].shape[1] for n in (0, 71, 72, 95)] == [16, 16, 64, 64]


class Watch(StopAt):
    """What is in force at each step."""

    def __init__(self, step=None):
        super().__init__(step)
        self.seen = []

    def on_step_end(self, args, state, control, model=None, **_):
        table = model.model.rotary_emb.inv_freq
        self.seen.append((round(float(table[1]) ** -8), model.config.max_position_embeddings))
        super().on_step_end(args, state, control)


def run(path, name, watch, base=10_000.0):
    return train(new_small_model(SMALL), schedule(path), PLAN, path / name, callbacks=[watch])


def test_the_base_switches_with_the_length_and_is_saved(tmp_path):
    watch = Watch(8)
    trainer = run(tmp_path, "run", watch)
    assert watch.seen == [(10_000, 16)] * 6 + [(50_000, 64)] * 2
    model = trainer.model.eval()
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "checkpoint-8").eval()
    assert again.config.rope_parameters["rope_theta"] == 50_000.0
    ids = torch.arange(60)[None]
    torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("step", [4, 6, 7])
def test_stopped_before_at_and_after_the_switch_it_goes_on_with_the_same_losses(tmp_path, step):
    whole, rest = Watch(), Watch()
    expected = losses(run(tmp_path, "whole", whole))
    run(tmp_path, "cut", Watch(step))
    assert losses(run(tmp_path, "cut", rest)) == expected
    assert rest.seen == whole.seen[step:]


def test_a_course_goes_on_as_it_began(tmp_path):
    run(tmp_path, "run", Watch(2))
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["course"] == [[24, 16, None], [32, 64, 50_000.0]]
    stages = [LengthStage(0.5, packs(tmp_path, 16)), LengthStage(0.5, packs(tmp_path, 64), 50_000.0)]
    with pytest.raises(Conflict, match=r"the run began with other values of course"):
        train(new_small_model(SMALL), LengthSchedule(stages, PLAN), PLAN, tmp_path / "run")


def test_a_finished_course_leaves_the_model_as_at_its_end(tmp_path):
    done, again = (run(tmp_path, "run", Watch()).model.eval() for _ in range(2))
    assert again.config.rope_parameters["rope_theta"] == 50_000.0
    assert again.config.max_position_embeddings == 64
    ids = torch.arange(60)[None]
    assert torch.equal(again(ids).logits, done(ids).logits)


def test_a_course_is_that_of_its_plan(tmp_path):
    with pytest.raises(Conflict, match=r"length schedule: 8 steps of 2 rows, 2 batches each, got \(16, 2, 2\)"):
        train(new_small_model(SMALL), schedule(tmp_path), replace(PLAN, steps=16), tmp_path / "longer")
    run(tmp_path, "run", Watch(2))
    with pytest.raises(Conflict, match=r"the run began with other values of course"):
        train(new_small_model(SMALL), packs(tmp_path, 16), PLAN, tmp_path / "run")


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "qwen3"])
def test_another_base_is_what_the_model_would_have_been_made_with(name):
    changed = tiny(name)
    made = tiny(name, rope_parameters={**changed.config.rope_parameters, "rope_theta": 77_000.0})
    set_base(changed, 77_000.0)
    ids = torch.arange(30)[None]
    assert torch.equal(changed(ids).logits, made(ids).logits)
    assert not torch.allclose(made(ids).logits, tiny(name)(ids).logits)


def test_bases_that_cannot_be_set_are_refused_before_training(tmp_path):
    model = new_small_model(SMALL)
    with (
        rw.extended(model, "alibi"),
        pytest.raises(Conflict, match="model must be without an extension where a length"),
    ):
        train(model, schedule(tmp_path), PLAN, tmp_path / "run")
    stretched = tiny("llama", rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0})
    with pytest.raises(DoesNotFit, match="default where a length schedule sets the base"):
        set_base(stretched, 20_000.0)


def test_courses_that_do_not_come_out_even(tmp_path):
    with pytest.raises(InvalidValue, match="with a sum of 1"):
        LengthSchedule([LengthStage(0.5, packs(tmp_path, 16))], PLAN)
    with pytest.raises(DoesNotFit, match=r"a divisor of the longest \(64\)"):
        LengthSchedule([LengthStage(0.5, packs(tmp_path, 24)), LengthStage(0.5, packs(tmp_path, 64))], PLAN)
    with pytest.raises(DoesNotFit, match="each share must be at least one step of 8"):
        LengthSchedule([LengthStage(0.01, packs(tmp_path, 16)), LengthStage(0.99, packs(tmp_path, 64))], PLAN)
    with pytest.raises(DoesNotFit, match="stage 0 must have at least 64 rows, got 60"):
        LengthSchedule([LengthStage(0.5, packs(tmp_path, 16, count=60)), LengthStage(0.5, packs(tmp_path, 64))], PLAN)


@pytest.mark.parametrize(
    ("bases", "expected"),
    [
        ((None, 20_000.0, None, 50_000.0), [10_000, 20_000, 20_000, 50_000]),
        ((30_000.0, 40_000.0, 20_000.0, None), [30_000, 40_000, 20_000, 20_000]),
    ],
)
def test_a_stage_has_the_last_base_that_was_stated(bases, expected):
    ends, lengths = [2, 4, 6, 8], [16, 32, 32, 64]
    for begin in range(8):  # wherever training goes on, the model is as it would be had it come from the beginning
        model, switches = new_small_model(SMALL), StageSwitch(PLAN, ends, lengths, bases)
        for step in range(begin, 8):
            switches.on_step_begin(None, SimpleNamespace(global_step=step), None, model=model)
            config = model.config
            now = config.rope_parameters["rope_theta"], config.max_position_embeddings
            assert now == (expected[step // 2], lengths[step // 2])
            assert round(float(model.model.rotary_emb.inv_freq[1]) ** -8) == expected[step // 2]
