"""Promise P1 on a GPU: outputs and gradients against the oracle, which stays on the CPU."""

import pytest
import torch

from ropewalk import Facts, Tokens, parse, reference_attention
from ropewalk.attention import attend, explain
from ropewalk.attention.torch_kernels import fused

from attention.problems import every, learned, tensors
from examples import FACTS

DEVICE = "cuda"
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # from within torch's compiler
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]
CLOSE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}
LARGE = Facts(trained_len=512, head_dim=64, heads=8, kv_heads=2)


def slopes(way, inputs, extension, facts, device, learning, positions=None):
    """The output, the gradients of the vectors, and those of learned numbers."""
    vectors = [x.detach().to(device).requires_grad_() for x in inputs]
    weights = {
        name: {key: value.to(device).requires_grad_(learning) for key, value in group.items()}
        for name, group in learned(extension, facts).items()
    }
    answer = way(*vectors, extension, facts, Tokens(positions), weights=weights)
    slope = torch.randn(answer.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    answer.backward(slope.to(device, answer.dtype))
    leaves = [value for group in weights.values() for value in group.values() if value.grad is not None]
    return [answer, *(leaf.grad for leaf in (*vectors, *leaves))]


def assert_equal(extension, inputs, facts=FACTS, learning=False, positions=None):
    ours = slopes(attend, inputs, extension, facts, DEVICE, learning, positions)
    theirs = slopes(reference_attention, inputs, extension, facts, "cpu", learning, positions)
    for one, other in zip(ours, theirs, strict=True):
        one, other = one.detach().double().cpu(), other.detach().double()
        error = (one - other).abs().max()
        assert error <= CLOSE[inputs[0].dtype] * max(1.0, float(other.abs().max())), float(error)


@every
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_equals_the_oracle(extension, dtype):
    assert_equal(extension, tensors(150, batch=2, dtype=dtype))


@pytest.mark.parametrize(
    "text", ["biases.t5", "biases.kerple_log+rerope:window=100", "biases.fire", "scales.head_scale"]
)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_learned_numbers_receive_their_gradients(text, dtype):
    assert_equal(parse(text), tensors(300, LARGE, dtype=dtype), LARGE, learning=True)


LONG = ("rerope:window=300", "streaming:window=128", "window:window=200", "dual_chunk:chunk=400,local=64", "alibi")


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("queries", [1, 500, 1025])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_texts_of_many_blocks(text, queries, dtype):
    assert_equal(parse(text), tensors(1025, LARGE, queries=queries, dtype=dtype), LARGE)


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_positions_with_gaps(text, dtype):
    """Equal chunks: spans that repeat at equal steps."""
    positions = torch.arange(1025)[None] + torch.arange(1025) // 256 * 900
    assert_equal(parse(text), tensors(1025, LARGE, dtype=dtype), LARGE, positions=positions)


@pytest.mark.parametrize("head_dim", [8, 20, 128, 256])
@pytest.mark.parametrize("groups", [1, 4])
def test_heads_of_every_size(head_dim, groups):
    facts = Facts(trained_len=64, head_dim=head_dim, heads=4, kv_heads=groups)
    assert_equal(parse("rerope:window=20"), tensors(150, facts, dtype=torch.bfloat16), facts)


def test_the_backends_are_the_expected_ones():
    assert fused.has_fused_kernel(DEVICE, torch.bfloat16)
    assert fused.has_fused_kernel(DEVICE, torch.float16)
    for text, dtype, way in (
        ("rerope:window=20", torch.bfloat16, "flash"),
        ("rerope:window=20", torch.float32, "flex"),
        ("biases.alibi+rerope:window=20", torch.bfloat16, "flex"),
    ):
        inputs = [x.to(DEVICE) for x in tensors(100, dtype=dtype)]
        assert f": {way}: " in explain(*inputs, parse(text), FACTS)


@pytest.fixture
def deterministic():
    """As a user asks for sums in a fixed order."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_the_same_inputs_give_the_same_bits():
    inputs = tensors(1025, LARGE, dtype=torch.bfloat16)
    for text in ("rerope:window=300", "window:window=200", "biases.alibi"):
        runs = [slopes(attend, inputs, parse(text), LARGE, DEVICE, learning=False) for _ in range(3)]
        assert all(torch.equal(one, other) for run in runs[1:] for one, other in zip(runs[0], run, strict=True))
