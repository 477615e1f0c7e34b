"""What stays on disk when there is no room for more."""

import errno
import shutil
from pathlib import Path

import pytest
from transformers import TrainerCallback

from ropewalk.errors import DoesNotFit, Unreadable
from ropewalk.train.checkpoints import FINISHED, changed_settings, last_checkpoint, reporting_full_disk, steps_done
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.small_models import ModelShape, new_small_model
from ropewalk.train.train import TrainingPlan, train

from train.texts import tokenizer, tokens
from train.watching import losses

SMALL = ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32)
FULL = Path("/dev/full")  # every write to it finds the disk full


class NoRoomFor(TrainerCallback):
    """The device that is always full in the place of one file of the checkpoint at step 8."""

    def __init__(self, name):
        self.name = name

    def on_step_begin(self, args, state, control, **_):
        place = Path(args.output_dir) / "checkpoint-8" / self.name
        if state.global_step == 7 and not place.parent.exists():
            place.parent.mkdir()
            place.symlink_to(FULL)


def run(path, name, callbacks=()):
    rows = PackedRows(tokens(path, count=20), tokenizer(), length=32, count=400)
    plan = TrainingPlan(steps=12, rows=4, save_every=4, log_every=1, progress=False)
    return train(new_small_model(SMALL), rows, plan, path / name, callbacks=callbacks)


@pytest.mark.nightly
@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("name", ["config.json", "optimizer.pt", "trainer_state.json"])
def test_a_full_disk_costs_the_checkpoint_that_is_written_and_no_other(tmp_path, name):
    whole = losses(run(tmp_path, "whole"))
    with pytest.raises(DoesNotFit, match=r"disk must be large enough.*checkpoint-4; make room and start again"):
        run(tmp_path, "full", [NoRoomFor(name)])
    assert [path.name for path in (tmp_path / "full").glob("checkpoint-*")] == ["checkpoint-4"]
    assert losses(run(tmp_path, "full")) == whole


@pytest.mark.parametrize(
    "wrong",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("[enforce fail at inline_container.cc:664] . PytorchStreamWriter failed writing file data/0"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_what_libraries_say_of_a_full_disk(tmp_path, wrong):
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(DoesNotFit, match="there is no checkpoint yet"), reporting_full_disk(tmp_path):
        raise wrong
    assert last_checkpoint(tmp_path) is None
    assert not (tmp_path / "checkpoint-3").exists()


def test_other_errors_are_left_alone(tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(RuntimeError, match="something else"), reporting_full_disk(tmp_path):
        raise RuntimeError("something else")
    assert (tmp_path / "checkpoint-3").exists()


def test_the_newest_is_that_of_the_most_steps(tmp_path):
    assert steps_done(tmp_path) == 0
    for step in (8, 12, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
    for step in (8, 12):
        (tmp_path / f"checkpoint-{step}" / FINISHED).touch()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-12"
    assert steps_done(tmp_path) == 12


FILES = ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run with checkpoints."""
    place = tmp_path_factory.mktemp("stopped")
    run(place, "run")
    return place


@pytest.mark.nightly
@pytest.mark.parametrize("content", [b"", b"garbage", b"[" * 100_000, None], ids=range(4))
@pytest.mark.parametrize("name", FILES)
def test_a_checkpoint_that_was_changed_is_refused_by_name(stopped, tmp_path, name, content):
    place = shutil.copytree(stopped, tmp_path / "copy")
    shutil.rmtree(place / "run" / "checkpoint-12")
    file = place / "run" / "checkpoint-8" / name
    file.write_bytes(file.read_bytes()[:100] if content is None else content)
    with pytest.raises(Unreadable, match=r"checkpoint must be complete and unchanged, got .*checkpoint-8.*remove it"):
        run(place, "run")


def test_a_state_of_another_step(stopped, tmp_path):
    place = shutil.copytree(stopped, tmp_path / "copy")
    (place / "run" / "checkpoint-12").rename(place / "run" / "checkpoint-99")
    with pytest.raises(Unreadable, match="checkpoint must be that of step 99, got '12 in "):
        run(place, "run")


def test_what_is_called_like_a_checkpoint(tmp_path):
    for name in ("checkpoint-last", "checkpoint-", "checkpoint-1x", "checkpoint-\u0663"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").touch()
    assert last_checkpoint(tmp_path) is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "[" * 100_000, '{"a": 1, "a": 1}', '{"seed": NaN}'], ids=range(7)
)
def test_settings_that_were_changed(tmp_path, content):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(Unreadable, match=r"plan\.json must be the settings that a run began with"):
        changed_settings(tmp_path / "plan.json", {"seed": 0})
