"""What `make gpu` measures of the plugin where vLLM is, run here on the CPU: no name or shape is wrong there."""

import json
from pathlib import Path

import pytest

from real_engines.process import ask


@pytest.mark.nightly
def test_the_step_runs_and_every_export_is_close(tmp_path):
    rows = json.loads(str(ask("vllm", Path(__file__).with_name("gpu_step.py"), {}, tmp_path)["rows"]))
    assert len(rows) == 6
    assert all(row["difference"] < 1e-3 and row["tokens per second"] > 0 for row in rows)
