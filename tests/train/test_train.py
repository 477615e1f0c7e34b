"""Training: to the end, stopped and gone on, and what is refused."""

import json
import os
import signal
from dataclasses import replace
from math import log

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from ropewalk import extend
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.train.checkpoints import last_checkpoint
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train

from train.texts import tokenizer, tokens
from train.watching import losses

SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)
QUIET = {"rows": 4, "save_every": 4, "log_every": 1, "progress": False}


def run(path, plan, callbacks=(), shape=SMALL, name="run", **more):
    rows = PackedRows(tokens(path), tokenizer(), length=32, count=400, puzzles={"repeats": 0.5})
    return train(new_small_model(shape), rows, plan, path / name, callbacks=callbacks, **more)


class Stop(TrainerCallback):
    """What a kill in the middle of a step looks like from inside."""

    def __init__(self, step, how):
        self.step, self.how = step, how

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            self.how()


class Killed(Exception):
    pass


def kill():
    raise Killed


def test_it_learns(tmp_path):
    got = losses(run(tmp_path, TrainingPlan(steps=60, **{**QUIET, "save_every": 60})))
    assert len(got) == 60
    assert got[0] == pytest.approx(log(300), abs=0.3)
    assert sum(got[-5:]) < 0.9 * sum(got[:5])


def test_killed_and_gone_on_has_the_same_losses(tmp_path):
    whole = run(tmp_path, TrainingPlan(steps=12, **QUIET), name="whole")
    with pytest.raises(Killed):
        run(tmp_path, TrainingPlan(steps=12, **QUIET), [Stop(6, kill)], name="killed")
    again = run(tmp_path, TrainingPlan(steps=12, **QUIET), name="killed")
    assert losses(again) == losses(whole)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


@pytest.mark.nightly
def test_sigterm_in_the_middle_of_a_step_saves_and_stops(tmp_path):
    before = signal.getsignal(signal.SIGTERM)  # ray's, where it ran in this process
    whole = run(tmp_path, TrainingPlan(steps=12, **QUIET), name="whole")
    stopped = run(tmp_path, TrainingPlan(steps=12, **QUIET), [Stop(5, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    assert stopped.state.global_step == 6
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-6"
    assert signal.getsignal(signal.SIGTERM) == before  # nobody listens any more
    assert losses(run(tmp_path, TrainingPlan(steps=12, **QUIET))) == losses(whole)


@pytest.mark.nightly
def test_a_half_written_checkpoint_is_passed_over(tmp_path):
    run(tmp_path, TrainingPlan(steps=8, **QUIET))
    (tmp_path / "run" / "checkpoint-8" / "trainer_state.json").unlink()
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-4"
    assert run(tmp_path, TrainingPlan(steps=8, **QUIET)).state.global_step == 8


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_one(tmp_path):
    class Poison(TrainerCallback):
        def on_step_begin(self, args, state, control, model, **_):
            if state.global_step == 5:
                model.model.norm.weight.data.fill_(float("nan"))

    said = r"loss at step 6 must be a finite number, got nan; .*checkpoint is .*checkpoint-4"
    with pytest.raises(DoesNotFit, match=said):
        run(tmp_path, TrainingPlan(steps=12, **QUIET), [Poison()])
    kept = last_checkpoint(tmp_path / "run")
    assert kept.name == "checkpoint-4"
    model = load_file(kept / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in model.values())


@pytest.mark.nightly
@pytest.mark.parametrize("step", [4, 5])
def test_a_gradient_that_is_no_number_stops_before_it_touches_the_weights(tmp_path, step):
    """The loss of that step is fine; a checkpoint of what it would make of the weights would not be."""

    class Poison(TrainerCallback):
        def on_step_begin(self, args, state, control, model, **_):
            if state.global_step == step:
                model.model.norm.weight.register_hook(lambda gradient: gradient / 0)

    said = rf"gradient at step {step + 1} must be a finite number, got (nan|inf); .*checkpoint is .*checkpoint-4; begin"
    with pytest.raises(DoesNotFit, match=said):
        run(tmp_path, TrainingPlan(steps=12, **QUIET), [Poison()])
    kept = load_file(last_checkpoint(tmp_path / "run") / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in kept.values())
    assert run(tmp_path, TrainingPlan(steps=12, **QUIET)).state.global_step == 12


def test_without_a_checkpoint_none_is_promised(tmp_path):
    with pytest.raises(DoesNotFit, match=r"there is no checkpoint yet; begin in another folder"):
        run(tmp_path, TrainingPlan(steps=12, rows=2, learning_rate=1e9, progress=False))


@pytest.mark.nightly
def test_a_finished_run_takes_no_more_steps(tmp_path):
    done, again = (run(tmp_path, TrainingPlan(steps=4, **QUIET)) for _ in range(2))  # of 100 steps' rows
    assert again.state.global_step == 4
    for name, value in done.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


@pytest.mark.nightly
def test_another_plan_in_the_same_folder(tmp_path):
    run(tmp_path, TrainingPlan(steps=4, **QUIET))
    with pytest.raises(Conflict, match=r"the run began with other values of learning_rate \("):
        run(tmp_path, TrainingPlan(steps=4, learning_rate=1e-4, **QUIET))
    assert run(tmp_path, TrainingPlan(steps=6, **QUIET)).state.global_step == 6  # longer is the same run
    with pytest.raises(
        InvalidValue, match=r"steps must be at least 6, the steps already done in .*, got 5; choose another"
    ):
        run(tmp_path, TrainingPlan(steps=5, **QUIET))
    assert run(tmp_path, TrainingPlan(steps=6, **QUIET)).state.global_step == 6


@pytest.mark.nightly
def test_a_checkpoint_of_another_shape(tmp_path):
    run(tmp_path, TrainingPlan(steps=4, **QUIET))
    wider = ModelShape(vocabulary=300, width=48, inner=64, layers=2, heads=2, trained_len=32)
    for other in (wider, replace(SMALL, layers=1)):
        with pytest.raises(DoesNotFit, match="of this model's shape"):
            run(tmp_path, TrainingPlan(steps=8, **QUIET), shape=other)


def test_reports_to_nobody():
    with pytest.raises(InvalidValue, match="report_to must be an installed integration, got 'foo'; known: none, all, "):
        TrainingPlan(steps=4, report_to="foo")


@pytest.mark.nightly
@pytest.mark.parametrize("how", [{"bf16": True}, {"checkpointing": True}, {"accumulate": 2}])
def test_ways_of_training(tmp_path, how):
    got = losses(run(tmp_path, TrainingPlan(steps=20, **QUIET, **how)))
    assert got[-1] < got[0]


@pytest.mark.nightly
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_rows_that_other_processes_prepare_are_the_same(tmp_path, start):
    itself = run(tmp_path, TrainingPlan(steps=4, **QUIET), name="itself")
    plan = TrainingPlan(steps=4, workers=2, **QUIET)
    others = run(tmp_path, plan, name="others", dataloader_multiprocessing_context=start)
    assert losses(others) == losses(itself)


@pytest.mark.nightly
def test_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    run(tmp_path, TrainingPlan(steps=4, report_to="tensorboard", **QUIET))
    assert list((tmp_path / "board").rglob("events.out.tfevents*"))


@pytest.mark.nightly
def test_whatever_trainer_can_do(tmp_path):
    assert run(tmp_path, TrainingPlan(steps=4, **QUIET), save_only_model=True).args.save_only_model
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["rows"] == 4


@pytest.mark.nightly
def test_a_model_trained_in_half_precision_computes_as_before(tmp_path):
    model = new_small_model(SMALL)
    ids = torch.arange(20)[None]
    rows = PackedRows(tokens(tmp_path), tokenizer(), length=32, count=8)
    train(model, rows, TrainingPlan(steps=2, bf16=True, **QUIET), tmp_path / "run")
    twin = new_small_model(SMALL)
    twin.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(ids).logits, twin.eval()(ids).logits)


@pytest.mark.nightly
def test_what_an_extension_learns_is_not_pulled_towards_0(tmp_path):
    """AdamW's decay is apart from its gradients: of the same step it changes what it decays, and nothing else."""
    trained = []
    for decay in (0.0, 0.5):
        model = new_small_model(SMALL)
        extend(model, "kerple")
        rows = PackedRows(tokens(tmp_path), tokenizer(), length=32, count=8)
        train(
            model, rows, TrainingPlan(steps=1, weight_decay=decay, learning_rate=1e-2, **QUIET), tmp_path / str(decay)
        )
        trained.append(model.state_dict())
    free, pulled = trained
    pulled_down = {name for name in free if not torch.equal(free[name], pulled[name])}
    assert not any("kerple" in name or "norm" in name for name in pulled_down)
    assert {name for name in free if name.endswith("proj.weight")} <= pulled_down
    assert sum("kerple" in name for name in free) == 2 * 2
