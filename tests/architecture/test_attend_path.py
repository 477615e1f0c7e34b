"""How many files a reader of one `attend` call has to open on the CPU.

Counted are the source files of the package in which a Python function runs during one call: forward, without a cache,
with everything imported. The first call for an extension and a model also checks them, and visits three more files at
most; later calls reuse the result.
"""

import pytest
import torch

from ropewalk import Facts, parse
from ropewalk.attention import attend, problem

from architecture.tree import PACKAGE, imports, visited

FACTS = Facts(trained_len=64, head_dim=16, heads=4)
FIRST_CALL = 3  # more files, which check the extension against the model
INSIDE = 11
LIMITS = {
    **dict.fromkeys(["rope", "xpos", "rerope:window=16", "streaming:window=16", "dual_chunk:chunk=32,local=8"], 20),
    "rerope:window=16+log_n": 21,
    **dict.fromkeys(["yarn:factor=4", "biases.t5"], 22),
    **dict.fromkeys(["biases.fire", "alibi"], 23),
    "dynamic_yarn": 25,
}


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", LIMITS)
def test_the_path_of_attend_is_short(text):
    extension = parse(text)
    weights = extension.weights(FACTS, torch.Generator().manual_seed(0))
    inputs = [torch.randn(2, 4, 100, 16) for _ in range(3)]
    attend(*inputs, extension, FACTS, weights=weights)  # imports, and the kernels' own check
    problem._complete_extension.cache_clear()
    first, later = (visited(lambda: attend(*inputs, extension, FACTS, weights=weights)) for _ in range(2))
    assert len(later) <= LIMITS[text], sorted(later)
    assert len(first) <= LIMITS[text] + FIRST_CALL, sorted(first - later)
    inside = {name for name in later if name.startswith("attention/")}
    assert len(inside) <= INSIDE + bool(extension.biases), sorted(inside)


def test_the_path_goes_down_only():
    """No file of a lower floor imports one of a higher floor."""
    floors = [
        ["layout"],
        ["rotation"],
        ["torch_kernels"],
        ["problem.py"],
        ["backends"],
        ["dispatch.py"],
        ["attend.py"],
        ["cache"],
    ]
    rank = {name: n for n, names in enumerate(floors) for name in names}
    for path in (PACKAGE / "attention").rglob("*.py"):
        floor = path.relative_to(PACKAGE / "attention").parts[0]
        if floor in rank:
            for other in imports(path):
                parts = other.split(".")[2:]
                if other.startswith("ropewalk.attention.") and parts:
                    lower = rank.get(parts[0], rank.get(f"{parts[0]}.py"))
                    assert lower is None or lower <= rank[floor], f"{path.name} imports {other}"
