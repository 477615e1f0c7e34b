"""vLLM's kernel for CPUs, asked span by span, computes the equation."""

from pathlib import Path

import pytest

from real_engines import process

LINES = ["log_n", "streaming:window=120", "rerope:window=80+log_n", "dynamic_yarn", "dynamic_ntk+rerope:window=80"]
SHAPES = [(4, 2, 32), (9, 3, 64), (32, 1, 64)]  # heads, key heads, size
BOUNDS = {"float32": 1e-5, "bfloat16": 3e-2}
ROUNDING = 1.5  # times the error of our own products, where logits are so large that rounding them is what counts


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", BOUNDS)
def test_equals_the_oracle(dtype, tmp_path):
    """Also with logits so large that another sink must be tried, or that no sink tells the sum."""
    cases = [(line, *shape, dtype, 1.0) for line in [*LINES, "long_reach"] for shape in SHAPES]
    cases += [("rerope:window=80", 4, 2, 32, dtype, logits) for logits in (15.0, 60.0, 1000.0)]
    answer = process.ask("vllm", Path(__file__).parent / "kernel.py", cases, tmp_path)
    pairs = zip(cases, answer["kernel"].tolist(), answer["products"].tolist(), strict=True)
    wrong = [(*case, error, ours) for case, error, ours in pairs if not error < max(BOUNDS[dtype], ROUNDING * ours)]
    assert wrong == []
