"""The line of numbers that replaces a mask, and its gradients."""

import pytest
import torch

from ropewalk import Facts, parse, reference_attention
from ropewalk.attention import attend, explain
from ropewalk.attention.backends import bias_diagonals as diagonal_gradients
from ropewalk.attention.backends.bias_diagonals import ROWS_PER_BLOCK, DiagonalRows, _blocks, _distances, diagonal
from ropewalk.attention.backends.bias_pruning import HeadBand
from ropewalk.attention.layout.segments import Segment, segments_of
from ropewalk.methods.frequencies import Table

from examples import FACTS

# Relative to the largest number compared. A learned number sums up a gradient of every pair.
CLOSE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2}


def only(text, queries, keys, facts=FACTS):
    numbers = torch.arange(keys)
    extension = parse(text)
    segments = segments_of(
        extension, facts, numbers[keys - queries :], [numbers] * len(extension.reach_or_causal.spans())
    )
    return [diagonal(segment, queries, keys) for segment in segments]


def test_what_is_a_matter_of_the_distance_alone():
    assert only("causal", 10, 10) == [DiagonalRows(slice(0, 10), 0, 0, 10)]
    assert only("window:window=4", 10, 10) == [DiagonalRows(slice(0, 10), 0, 0, 3)]
    assert only("causal", 3, 10) == [DiagonalRows(slice(0, 3), 7, 0, 10)]
    assert only("blockwise:block=4", 10, 10) == [None]
    assert None in only("rerope:window=4", 20, 20)


def segment(start, stop, q_at=None, k_at=None):
    """Rows at all positions of the keys; each sees the keys from one slot to another."""
    places = torch.arange(len(start))
    q_at, k_at = places if q_at is None else q_at, places if k_at is None else k_at
    return Segment(0, slice(0, len(start)), q_at, k_at, Table(torch.zeros(0), torch.zeros(0)), start, stop, [])


def test_what_is_not_a_matter_of_the_distance_alone():
    """The first rows see further than the last, or the reverse; one row is at another position; one sees nothing."""
    slots = torch.arange(20)
    window = (slots - 5).clamp(min=0)
    assert diagonal(segment(window, slots + 1), 20, 20) == DiagonalRows(slice(0, 20), 0, 0, 5)
    for start, stop in (
        (torch.where(slots < 10, 0, slots - 3), slots + 1),
        (torch.where(slots < 10, window, slots - 3), slots + 1),
        (window, torch.where(slots == 9, slots, slots + 1)),
        (window, torch.where(slots == 9, window, slots + 1)),
    ):
        assert diagonal(segment(start, stop), 20, 20) is None
    moved = torch.where(slots == 9, 8, slots)
    assert diagonal(segment(window, slots + 1, q_at=moved), 20, 20) is None
    assert diagonal(segment(window, slots + 1, q_at=slots * 2, k_at=slots * 2), 20, 20) is None


@pytest.mark.parametrize("width", [1, 37, 300, 10_000])
@pytest.mark.parametrize(
    ("text", "queries", "keys"), [("causal", 700, 700), ("window:window=300", 700, 700), ("window:window=40", 300, 900)]
)
def test_the_masks_of_the_blocks_are_the_definition(text, queries, keys, width):
    """Every block's view against f(i - j) in full, with minus infinity for hidden keys."""
    (rows,) = only(text, queries, keys, Facts(trained_len=1024, head_dim=8))
    distances = _distances(rows, torch.device("cpu")).clamp(min=0)
    line = torch.stack([distances * 3.0, distances * 1.0, -distances * 2.0]).double()
    furthest = min(rows.furthest, keys - 1, width - 1)
    band = HeadBand(slice(0, 1), slice(1, 3), slice(1, 3), furthest + 1)
    for block in _blocks(rows, [band], line, torch.zeros(1, 3, queries, 8)):
        i = torch.arange(block.rows.stop - 1, block.rows.start - 1, -1)[:, None] + keys - queries
        distance = i - torch.arange(block.visible.start, block.visible.stop)
        hidden = (distance < 0) | (distance > furthest)
        # The largest of each head is taken off: it cancels.
        expected = torch.stack([distance * 1.0 - furthest, -distance * 2.0]).masked_fill(hidden, -torch.inf)
        assert torch.equal(block.mask[0], expected)
        assert (~hidden).any(1).all()
        assert block.mask.untyped_storage().nbytes() < 4 * 2 * (keys + ROWS_PER_BLOCK + 2)


def both_ways(text, facts, shapes, dtype=torch.float64, frozen=()):
    """The output and the gradients of vectors and learned numbers, by `attend` and by the oracle.

    Vectors at the `frozen` places need none.
    """
    rng, results = torch.Generator().manual_seed(3), []
    inputs = [torch.randn(shape, generator=rng).to(dtype) for shape in shapes]
    for way in (attend, reference_attention):
        vectors = [x.clone().requires_grad_(place not in frozen) for place, x in enumerate(inputs)]
        weights = parse(text).weights(facts, torch.Generator().manual_seed(7))
        leaves = [value.requires_grad_() for group in weights.values() for value in group.values()]
        answer = way(*vectors, parse(text), facts, weights=weights)
        slope = torch.randn(answer.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        answer.backward(slope.to(dtype).to(answer.dtype))
        results.append([answer.detach(), *(leaf.grad for leaf in (*vectors, *leaves) if leaf.requires_grad)])
    return zip(*results, strict=True)


def assert_close(pairs, dtype):
    for one, other in pairs:
        error = (one.double() - other.double()).abs().max()
        assert error <= CLOSE[dtype] * max(1.0, float(other.abs().max())), float(error)


GAU = "biases.gau_rotary:width=8"
LEARNED = [
    "biases.kerple_log",
    "biases.kerple_power",
    "biases.bam:centred=false",
    "biases.t5",
    GAU,
    "kerple_log+biases.t5",
]


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("text", LEARNED)
def test_what_a_bias_learns_is_the_oracles_gradient(text, dtype):
    """More rows than a block, more keys than a block of the backward pass, two query heads per key head."""
    facts = Facts(trained_len=512, head_dim=8, heads=2, kv_heads=1)
    assert_close(both_ways(text, facts, [(1, 2, 530, 8), *[(1, 1, 530, 8)] * 2], dtype), dtype)


@pytest.mark.parametrize("frozen", [(0, 1, 2), (0, 1), (1, 2)])
def test_a_bias_learns_where_vectors_do_not(frozen):
    facts = Facts(trained_len=256, head_dim=8, heads=2, kv_heads=1)
    assert_close(both_ways("kerple_log", facts, [(1, 2, 40, 8), *[(1, 1, 40, 8)] * 2], frozen=frozen), torch.float64)


@pytest.mark.parametrize("text", ["kerple_log+window:window=200", "biases.t5+dynamic_ntk", GAU])
@pytest.mark.parametrize("queries", [1, 300])
def test_learning_from_some_queries_under_windows_and_schedules(text, queries):
    facts = Facts(trained_len=256, head_dim=8, heads=4, kv_heads=2)
    assert_close(both_ways(text, facts, [(2, 4, queries, 8), *[(2, 2, 600, 8)] * 2]), torch.float64)


def learning(length, dtype=torch.float32):
    facts = Facts(trained_len=512, head_dim=8, heads=2)
    weights = parse("kerple_log").weights(facts, torch.Generator().manual_seed(7))
    leaves = [value.requires_grad_() for value in weights["kerple_log"].values()]
    rng = torch.Generator().manual_seed(0)
    vectors = [torch.randn(1, 2, length, 8, generator=rng).to(dtype).requires_grad_() for _ in range(3)]
    return vectors, facts, weights, leaves


def test_the_backward_pass_is_linear_in_memory_too(monkeypatch):
    """No tensor grows with the square of the length."""
    vectors, facts, weights, _ = learning(3000)
    saved, made = [], []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        answer = attend(*vectors, parse("kerple_log"), facts, weights=weights)
    original = torch.baddbmm
    noted = lambda *args, **named: made.append(original(*args, **named)) or made[-1]  # noqa: E731
    monkeypatch.setattr(torch, "baddbmm", noted)
    answer.sum().backward()
    assert max(saved) <= 2 * 3000 * 8
    assert made
    assert max(logit.numel() for logit in made) <= diagonal_gradients.LOGITS_PER_BLOCK


def test_autocast_around_the_backward_pass_changes_nothing():
    grads = []
    for autocast in (False, True):
        vectors, facts, weights, leaves = learning(300)
        answer = attend(*vectors, parse("kerple_log"), facts, weights=weights)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            answer.square().sum().backward()
        grads.append([leaf.grad for leaf in (*vectors, *leaves)])
    assert all(torch.equal(one, other) for one, other in zip(*grads, strict=True))


def test_a_gradient_of_a_gradient_is_refused():
    vectors, facts, weights, leaves = learning(20)
    answer = attend(*vectors, parse("kerple_log"), facts, weights=weights)
    (slope,) = torch.autograd.grad(answer.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_explain_says_how_the_line_learns():
    vectors, facts, weights, _ = learning(30)
    reason = explain(*vectors, parse("kerple_log"), facts, weights=weights)
    assert reason.endswith("is read from a line of numbers (kerple_log); its gradient is summed along the diagonals")
    with torch.no_grad():
        reason = explain(*vectors, parse("kerple_log"), facts, weights=weights)
    assert reason.endswith("where the norms prove that they weigh less than 2^-24 in all")
