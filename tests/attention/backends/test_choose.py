"""Which backend is chosen on which device, and which problems each backend refuses. No GPU is needed."""

import re
from pathlib import Path

import pytest
import torch

from ropewalk import DoesNotFit, parse
from ropewalk.attention.backends import bias_diagonals, choose as choose_module, dense, flash, flex
from ropewalk.attention.backends.choose import ORDER, candidates, choices, choose
from ropewalk.attention.dispatch import row_biases
from ropewalk.attention.layout.segments import segments_of
from ropewalk.attention.problem import LayerTerms, Problem
from ropewalk.attention.torch_kernels import fused

from attention.problems import EVERY, every
from examples import FACTS

HALF = torch.bfloat16


def problem_of(text, *, dtype=HALF, device="cuda", learning=False, value_dim=16, head_dim=16, numbers=None):
    extension = parse(text) if isinstance(text, str) else text
    numbers = torch.arange(200) if numbers is None else numbers
    layout = segments_of(extension, FACTS, numbers, [numbers] * len(extension.reach_or_causal.spans()))
    device = torch.device(device)
    problem = Problem(extension, layout, len(numbers), len(numbers), head_dim, value_dim, dtype, device, learning)
    terms = LayerTerms(extension, FACTS, extension.weights(FACTS))
    return problem._replace(row_biases=row_biases(numbers, layout, terms) if extension.biases else None)


SCATTERED = torch.randperm(4000, generator=torch.Generator().manual_seed(0))[:200].sort().values


@pytest.fixture
def gpu(monkeypatch):
    """As if torch had its kernels for cuda, in half precision, and could compile FlexAttention."""
    monkeypatch.setattr(fused, "has_fused_kernel", lambda device, dtype: device == "cuda" and dtype.itemsize == 2)
    monkeypatch.setattr(flex, "find_spec", lambda name: name)


ONE, TWO = "1 compiled call of FlexAttention", "2 compiled calls of FlexAttention"
READ = "the bias read from a line of numbers"
SIZES = "the fused kernels need values of the same size as queries"


@pytest.mark.parametrize(
    ("problem", "backend", "why"),
    [
        (problem_of("rerope:window=20"), "flash", "3 tiles by fused kernels, 20,100 query-key pairs"),
        (
            problem_of("rerope:window=20", dtype=torch.float32),
            "flex",
            f"{TWO}; torch has no such kernel for torch.float32 on cuda",
        ),
        (
            problem_of("rope", dtype=torch.float64),
            "dense",
            "torch has no such kernel for torch.float64 on cuda; FlexAttention has no float64",
        ),
        (problem_of("window:window=50", numbers=SCATTERED), "flex", f"{ONE}; positions scatter the spans into"),
        (problem_of("rope", value_dim=32), "flex", f"{ONE}; {SIZES}"),
        (
            problem_of("rope", value_dim=264, head_dim=264),
            "flex",
            "1 compiled call of FlexAttention; torch's kernel for cuda takes heads of at most 256",
        ),
        (problem_of("rope", value_dim=8, dtype=torch.float64), "dense", f"{SIZES}; FlexAttention"),
        (
            problem_of("rerope:window=20+far_discount:window=20"),
            "flash",
            "3 tiles by fused kernels, 20,100 query-key pairs, rows of a part weighted by their bias (far_discount)",
        ),
        (
            problem_of("rerope:window=20+far_discount:window=19"),
            "dense",
            "the bias depends on more than the distance (far_discount)",
        ),
        (problem_of("alibi"), "flex", f"{ONE}, {READ} (alibi)"),
        (
            problem_of("biases.alibi+rerope:window=20", learning=True),
            "flex",
            "2 compiled calls of FlexAttention, the bias read from a line of numbers (alibi)",
        ),
        (problem_of("fire"), "dense", "the bias depends on more than the distance (fire)"),
        (
            problem_of("alibi", numbers=torch.arange(200) * 10_000),
            "dense",
            "the effective distances are not evenly spaced",
        ),
        (problem_of("xpos", dtype=torch.float16, numbers=torch.arange(200) * 60), "dense", "the decay spans exp("),
    ],
)
def test_on_cuda(gpu, problem, backend, why):
    chosen = choose(problem)
    assert chosen.backend.name == backend
    assert chosen.why.startswith(why)


LINE = "the mask of the fused kernels is read from a line of numbers"
FAR = "far keys are left out where the norms prove that they weigh less than 2^-16 in all"


@pytest.mark.parametrize(
    ("problem", "backend", "why"),
    [
        (problem_of("rope", device="cpu"), "flash", "1 tile by fused kernels, 20,100 query-key pairs"),
        (problem_of("alibi", device="cpu"), "bias_diagonals", f"{LINE} (alibi); {FAR}"),
        (
            problem_of("t5", device="cpu", learning=True),
            "bias_diagonals",
            f"{LINE} (t5); its gradient is summed along the diagonals",
        ),
        (problem_of("rope", device="cpu", value_dim=32), "dense", SIZES),
        (problem_of("alibi", device="cpu", value_dim=32), "dense", SIZES),
        (
            problem_of("rope", device="mps"),
            "flash",
            "1 tile by fused kernels, 20,100 query-key pairs; "
            "torch has no such kernel for torch.bfloat16 on mps: a matmul replaces it",
        ),
        (
            problem_of("alibi", device="mps"),
            "bias_diagonals",
            f"{LINE} (alibi); {FAR}; torch has no such kernel for torch.bfloat16 on mps: a matmul replaces it",
        ),
    ],
)
def test_elsewhere(problem, backend, why):
    choice = choose(problem)
    assert (choice.backend.name, choice.why) == (backend, why)


def test_a_gpu_without_torchs_kernels_and_without_triton(monkeypatch):
    monkeypatch.setattr(flex, "find_spec", lambda name: None)
    monkeypatch.setattr(fused, "has_fused_kernel", lambda device, dtype: False)
    why = "torch has no such kernel for torch.bfloat16 on cuda; FlexAttention cannot be compiled without Triton"
    choice = choose(problem_of("rope"))
    assert (choice.backend.name, choice.why) == ("dense", why)


def test_growth_beyond_float64_is_refused(gpu):
    with pytest.raises(DoesNotFit, match="xpos grows beyond float64"):
        choose(problem_of("xpos", numbers=torch.arange(200) * 100_000))


REFUSALS = [
    (flash, problem_of("alibi"), "the fused kernels add no bias that differs between the keys of a row (alibi)"),
    (flash, problem_of("window:window=50", numbers=SCATTERED), "positions scatter the spans"),
    (flash, problem_of("rope", value_dim=32), SIZES),
    (flash, problem_of("rope", dtype=torch.float32), "torch has no such kernel for torch.float32 on cuda"),
    (flash, problem_of("rope", head_dim=512, value_dim=512), "torch's kernel for cuda takes heads of at most 256"),
    (bias_diagonals, problem_of("rope"), "there is no bias"),
    (bias_diagonals, problem_of("fire"), "the bias depends on more than the distance (fire)"),
    (
        bias_diagonals,
        problem_of("biases.alibi+rerope:window=20"),
        "the reach gives the bias effective distances that differ from the true ones",
    ),
    (bias_diagonals, problem_of("alibi", value_dim=32), SIZES),
    (flex, problem_of("rope", device="cpu"), "FlexAttention is compiled for cuda only, not for cpu"),
    (flex, problem_of("rope", dtype=torch.float64), "FlexAttention has no float64"),
    (flex, problem_of("rope", head_dim=8), "FlexAttention needs heads of at least 16 numbers"),
    (flex, problem_of("fire"), "the bias depends on more than the distance (fire)"),
    (
        flex,
        problem_of("alibi", numbers=torch.arange(200) * 100),
        "the effective distances are not evenly spaced on a short line (alibi)",
    ),
]


@pytest.mark.parametrize(("backend", "problem", "why"), REFUSALS)
def test_what_is_not_carried_is_refused(gpu, backend, problem, why):
    assert (backend.why_not(problem) or "").startswith(why)


def test_a_learned_bias_in_a_fixed_order_is_not_for_flex(gpu):
    """torch sums that gradient by atomic additions."""
    assert flex.why_not(problem_of("t5", learning=True)) is None
    before = torch.get_deterministic_debug_mode()
    try:
        torch.set_deterministic_debug_mode("error")
        why = flex.why_not(problem_of("t5", learning=True))
        assert why == "FlexAttention sums the gradient of a bias in no fixed order (t5)"
        assert flex.why_not(problem_of("t5")) is None
    finally:
        torch.set_deterministic_debug_mode(before)


@pytest.mark.sampled
@every
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("dtype", [torch.float32, HALF, torch.float64], ids=str)
def test_something_always_carries(gpu, extension, device, dtype):
    """And the chosen backend does not refuse."""
    problem = problem_of(extension, device=device, dtype=dtype)
    assert dense.DENSE.why_not(problem) is None
    backend = choose(problem).backend
    assert backend in candidates(problem)
    assert backend.why_not(problem) is None


def test_every_backend_is_a_candidate_somewhere(gpu):
    devices = [torch.device(device) for device in ("cpu", "cuda", "mps")]
    names = {
        backend.name
        for extension in EVERY
        for device in devices
        for backend in candidates(problem_of(extension, device=device.type))
    }
    assert names == {backend.name for backends in ORDER.values() for backend in backends} == {*backend_names()}


def backend_names():
    """The names of all records that the files of the folder define."""
    folder = Path(choose_module.__file__).parent
    return re.findall(r'^[A-Z_]+ = Backend\(\n? *"(\w+)"', "\n".join(p.read_text() for p in folder.rglob("*.py")), re.M)


def test_the_page_of_choices_is_the_list():
    header, *rows = choices().splitlines()
    assert header.split() == [
        "device",
        "extension",
        *["backends:", "the", "first", "that", "supports", "the", "problem", "computes", "it"],
    ]
    assert rows[0].split() == ["cuda", "no", "bias", "flash,", "flex,", "dense"]
    for (device, bias), row in zip(ORDER, rows, strict=True):
        assert row.startswith(device)
        assert f" {bias} " in row
        assert row.endswith(", ".join(backend.name for backend in ORDER[device, bias]))
