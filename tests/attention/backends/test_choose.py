"""Who computes what on which device, and what each way says it cannot do. No GPU is needed to ask."""

import pytest
import torch

from ropewalk import DoesNotFit, parse
from ropewalk.attention.backends import bias_diagonals, dense, flash, flex
from ropewalk.attention.backends import choose as chooser
from ropewalk.attention.backends.choose import choose
from ropewalk.attention.backends.triton import launch
from ropewalk.attention.layout.segments import segments
from ropewalk.attention.problem import Problem
from ropewalk.attention.torch_kernels import verified

from attention.test_attend import EVERY, every
from examples import FACTS

HALF = torch.bfloat16


def case(text, *, dtype=HALF, device="cuda", learning=False, value_dim=16, head_dim=16, numbers=None):
    extension = parse(text) if isinstance(text, str) else text
    numbers = torch.arange(200) if numbers is None else numbers
    found = segments(extension, FACTS, numbers, [numbers] * len(extension.spans.spans()))
    device = torch.device(device)
    return Problem(extension, found, len(numbers), len(numbers), head_dim, value_dim, dtype, device, learning)


SCATTERED = torch.randperm(4000, generator=torch.Generator().manual_seed(0))[:200].sort().values


@pytest.fixture
def gpu(monkeypatch):
    """As if torch had its kernels for cuda, in half precision, and Triton."""
    monkeypatch.setattr(verified, "has_fused_kernel", lambda device, dtype: device == "cuda" and dtype.itemsize == 2)
    monkeypatch.setattr(flex, "find_spec", lambda name: name)
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: name)


ONE = "one kernel over all spans turns, adds biases and scales as it goes"


@pytest.mark.parametrize(
    ("given", "backend", "why"),
    [
        (case("rerope:window=20"), "flash", "3 pieces by fused kernels, 20,100 pairs of a query and a key"),
        (
            case("rerope:window=20", dtype=torch.float32),
            "triton",
            f"{ONE}; torch has no such kernel for torch.float32 on cuda",
        ),
        (
            case("rope", dtype=torch.float64),
            "direct",
            "torch has no such kernel for torch.float64 on cuda; triton: it does not compute in float64; "
            "FlexAttention has no float64",
        ),
        (
            case("window:window=50", numbers=SCATTERED),
            "triton",
            f"{ONE}; positions scatter the spans into",
        ),
        (
            case("rope", value_dim=32),
            "triton",
            f"{ONE}; the fused kernels want values of the queries' size",
        ),
        (
            case("rope", value_dim=264, head_dim=264),
            "flex",
            "1 call of FlexAttention, compiled; torch's kernel for cuda takes heads of 256 at most; "
            "triton: heads of 264 are beyond 128",
        ),
        (
            case("rope", value_dim=8, dtype=torch.float64),
            "direct",
            "the fused kernels want values of the queries' size; triton: it does not compute in float64; FlexAttention",
        ),
        (
            case("alibi"),
            "triton",
            ONE,
        ),
        (
            case("biases.alibi+rerope:window=20", learning=True),
            "flex",
            "2 calls of FlexAttention, compiled, the bias read from a line of numbers (alibi); triton: what the bias",
        ),
        (
            case("fire"),
            "direct",
            "triton: the bias is not one of the distance alone (fire); the bias is not one of the distance alone",
        ),
        (
            case("alibi", numbers=torch.arange(200) * 10_000),
            "direct",
            "triton: the distances spread beyond 1,048,576 (alibi); the distances shown to the bias do not lie evenly",
        ),
        (case("xpos", dtype=torch.float16, numbers=torch.arange(200) * 60), "direct", "the decay spans exp("),
    ],
)
def test_on_cuda(gpu, given, backend, why):
    chosen = choose(given)
    assert chosen.backend == backend
    assert chosen.why.startswith(why)


LINE = "a line of numbers is the mask of the fused kernels"
FAR = "far keys that norms certify to weigh below 2^-16 in all are left out"


@pytest.mark.parametrize(
    ("given", "backend", "why"),
    [
        (case("rope", device="cpu"), "flash", "1 pieces by fused kernels, 20,100 pairs of a query and a key"),
        (case("alibi", device="cpu"), "toeplitz", f"{LINE} (alibi); {FAR}"),
        (
            case("t5", device="cpu", learning=True),
            "toeplitz",
            f"{LINE} (t5); its gradient is summed along the diagonals",
        ),
        (case("rope", device="cpu", value_dim=32), "direct", "the fused kernels want values of the queries' size"),
        (case("alibi", device="cpu", value_dim=32), "direct", "the fused kernels want values of the queries' size"),
        (
            case("rope", device="mps"),
            "flash",
            "1 pieces by fused kernels, 20,100 pairs of a query and a key; "
            "torch has no such kernel for torch.bfloat16 on mps: a matmul stands in",
        ),
        (
            case("alibi", device="mps"),
            "toeplitz",
            f"{LINE} (alibi); {FAR}; torch has no such kernel for torch.bfloat16 on mps: a matmul stands in",
        ),
    ],
)
def test_elsewhere(given, backend, why):
    assert choose(given)[:2] == (backend, why)


def test_a_gpu_without_torchs_kernels_and_without_triton(monkeypatch):
    monkeypatch.setattr(flex, "find_spec", lambda name: None)
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(verified, "has_fused_kernel", lambda device, dtype: False)
    why = (
        "torch has no such kernel for torch.bfloat16 on cuda; triton: triton is not installed; "
        "FlexAttention needs Triton to be compiled"
    )
    assert choose(case("rope"))[:2] == ("direct", why)


def test_growth_beyond_float64_is_refused(gpu):
    with pytest.raises(DoesNotFit, match="xpos grows beyond float64"):
        choose(case("xpos", numbers=torch.arange(200) * 100_000))


REFUSALS = [
    (flash, case("alibi"), "the fused kernels add no bias (alibi)"),
    (flash, case("window:window=50", numbers=SCATTERED), "positions scatter the spans"),
    (flash, case("rope", value_dim=32), "the fused kernels want values of the queries' size"),
    (flash, case("rope", dtype=torch.float32), "torch has no such kernel for torch.float32 on cuda"),
    (flash, case("rope", head_dim=512, value_dim=512), "torch's kernel for cuda takes heads of 256 at most"),
    (bias_diagonals, case("rope"), "there is no bias"),
    (bias_diagonals, case("fire"), "the bias is not one of the distance alone (fire)"),
    (
        bias_diagonals,
        case("biases.alibi+rerope:window=20"),
        "the reach shows other distances than the true ones to a bias",
    ),
    (bias_diagonals, case("alibi", value_dim=32), "the fused kernels want values of the queries' size"),
    (flex, case("rope", device="cpu"), "FlexAttention is compiled for cuda alone, not for cpu"),
    (flex, case("rope", dtype=torch.float64), "FlexAttention has no float64"),
    (flex, case("rope", head_dim=8), "FlexAttention wants heads of at least 16 numbers"),
    (flex, case("fire"), "the bias is not one of the distance alone (fire)"),
    (flex, case("alibi", numbers=torch.arange(200) * 100), "the distances shown to the bias do not lie evenly (alibi)"),
]


@pytest.mark.parametrize(("way", "given", "why"), REFUSALS)
def test_what_cannot_be_carried_is_refused(gpu, way, given, why):
    assert (way.why_not(given) or "").startswith(why)


def test_a_learned_bias_in_a_fixed_order_is_not_for_flex(gpu):
    """torch sums that gradient by atomic additions."""
    assert flex.why_not(case("t5", learning=True)) is None
    before = torch.get_deterministic_debug_mode()
    try:
        torch.set_deterministic_debug_mode("error")
        why = flex.why_not(case("t5", learning=True))
        assert why == "FlexAttention sums the gradient of a bias in no fixed order (t5)"
        assert flex.why_not(case("t5")) is None
    finally:
        torch.set_deterministic_debug_mode(before)


@every
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("dtype", [torch.float32, HALF, torch.float64], ids=str)
def test_something_always_carries(gpu, extension, device, dtype):
    """And what is chosen has not refused."""
    given = case(extension, device=device, dtype=dtype)
    assert dense.why_not(given) is None
    backend = choose(given).backend
    (way,) = [each for each in chooser.ways(given) if each.backend == backend]
    assert way.why_not(given) is None


def test_every_way_is_asked_somewhere(gpu):
    devices = [torch.device(device) for device in ("cpu", "cuda", "mps")]
    asked = {
        way.backend for each in EVERY for device in devices for way in chooser.ways(case(each, device=device.type))
    }
    assert asked == {"flash", "toeplitz", "triton", "flex", "direct"}
