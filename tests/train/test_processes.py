"""Two processes that train one model: as launched by accelerate, and as sharded by torch."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from train.launched import STEPS, run
from train.sharded import sharded, whole

TESTS = Path(__file__).parents[1]
LIMIT = 240  # seconds of a launch; it takes a few


def launch(folder, *stop):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"]
    command += ["--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", f"--main_process_port={port}"]
    paths = [str(TESTS), str(TESTS.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command += [str(TESTS / "train" / "launched.py"), str(folder), *map(str, stop)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)


def state(folder, step):
    return json.loads((folder / "two" / f"checkpoint-{step}" / "trainer_state.json").read_text())


@pytest.mark.nightly
def test_two_processes_are_one_with_twice_the_rows_also_after_sigterm(tmp_path):
    """Told to end in the middle of step 6, both save at its end; launched again they go on to the same losses."""
    alone = run(tmp_path, 4, "one")
    stopped = launch(tmp_path, 5)
    assert stopped.returncode != 0
    assert "got signal: 15" in stopped.stderr
    assert sorted(path.name for path in (tmp_path / "two").glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-6"]
    again = launch(tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]
    got = [entry["loss"] for entry in state(tmp_path, STEPS)["log_history"] if "loss" in entry]
    expected = [entry["loss"] for entry in alone.state.log_history if "loss" in entry]
    assert len(got) == STEPS
    assert got == pytest.approx(expected, abs=2e-5)  # sums of floats in another order
    assert json.loads((tmp_path / "two" / "plan.json").read_text())["rows"] == 2
    assert len(list((tmp_path / "two" / f"checkpoint-{STEPS}").glob("rng_state_*.pth"))) == 2


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("extension", ["kerple", "bam", "nope+biases.fire", "rerope:window=8"])
def test_a_sharded_model_is_the_whole_one(tmp_path, extension):
    """FSDP2 on a mesh of two processes: loss and gradients, also of what the extension learns."""
    loss, grads = whole(extension)
    first, second = sharded(extension, tmp_path / "meeting")
    assert first.trouble == second.trouble == ""
    assert first.sharded == second.sharded == len(grads)
    assert first.loss == second.loss == pytest.approx(loss, abs=1e-5)
    assert first.grads.keys() == grads.keys()
    for name, expected in grads.items():
        torch.testing.assert_close(torch.from_numpy(first.grads[name]), expected, rtol=1e-4, atol=1e-5)
    learned = [name for name in grads if "ropewalk" in name]
    assert bool(learned) == (extension != "rerope:window=8")
    assert all(grads[name].abs().max() > 0 for name in learned)
