"""What a benchmark says where it cannot run."""

import importlib
from pathlib import Path

import pytest
import torch


def test_the_gpu_benchmark_refuses_without_a_gpu(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="must run where torch sees a CUDA GPU"):
        importlib.import_module("gpu").main()
