"""The adapters of torch's private kernels. No GPU is needed: the cuda operators are replaced by plain torch."""

import inspect
import math

import pytest
import torch

from ropewalk import Facts, parse
from ropewalk.attention.torch_kernels import fused, softmax as matmul
from ropewalk.attention.torch_kernels.softmax import PartialAttention, TileMask

from attention import flash_attention_2
from attention.problems import assert_equal, every, tensors


@pytest.fixture
def cuda(monkeypatch):
    """The adapters of cuda on the CPU, over its operators in plain torch."""
    monkeypatch.setattr(fused, "CUDA_FORWARD", flash_attention_2.forward)
    monkeypatch.setattr(fused, "CUDA_BACKWARD", flash_attention_2.backward)
    monkeypatch.setitem(fused.BY_DEVICE, "cpu", fused.BY_DEVICE["cuda"])
    fused.has_fused_kernel.cache_clear()
    yield
    monkeypatch.undo()
    fused.has_fused_kernel.cache_clear()


@pytest.mark.parametrize("name", ["CUDA_FORWARD", "CUDA_BACKWARD"])
def test_torchs_operators_still_take_our_arguments(name):
    """A torch that adds, drops or moves an argument fails here, without a GPU."""
    operator = getattr(fused, name).default
    written = inspect.signature(getattr(flash_attention_2, name.removeprefix("CUDA_").lower())).parameters.values()
    named = [argument.name for argument in written if argument.kind is argument.KEYWORD_ONLY]
    placed = [argument.name for argument in written if argument.kind is not argument.KEYWORD_ONLY]
    theirs = operator._schema.arguments
    assert [argument.name for argument in theirs if not argument.kwarg_only] == placed
    assert {argument.name for argument in theirs if argument.kwarg_only} >= set(named)
    assert all(
        argument.has_default_value() for argument in theirs if argument.kwarg_only and argument.name not in named
    )


TILE_MASKS = [
    (6, 6, TileMask(triangle=True)),
    (6, 9, TileMask()),
    (6, 9, TileMask(window=4)),
    (6, 6, TileMask(window=4)),
    (6, 6, TileMask(window=6)),
    (1, 1, TileMask(window=1)),
]


@pytest.mark.parametrize(("rows", "keys", "tile_mask"), TILE_MASKS)
def test_torchs_operators_accept_the_call(rows, keys, tile_mask):
    """The real operators on meta tensors: types and shapes, no values."""
    q, k, v = (torch.zeros(2, heads, n, 12, device="meta").half() for heads, n in ((4, rows), (2, keys), (2, keys)))
    part = fused.cuda_forward(q, k, v, tile_mask)
    assert part.out_bhid.shape == q.shape
    assert (part.lse_bhi.shape, part.lse_bhi.dtype) == (q.shape[:3], torch.float32)
    slopes = fused.cuda_backward(part.out_bhid, q, k, v, part, tile_mask)
    assert [argument.shape for argument in slopes] == [q.shape, k.shape, v.shape]


@pytest.mark.parametrize(("rows", "keys", "tile_mask"), TILE_MASKS)
@pytest.mark.parametrize("head_dim", [8, 12])
def test_cuda_adapters_give_what_a_matmul_gives(cuda, rows, keys, tile_mask, head_dim):
    rng = torch.Generator().manual_seed(0)
    q, grad, other = torch.randn(3, 2, 4, rows, head_dim, generator=rng, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, keys, head_dim, generator=rng, dtype=torch.float64)
    ours, theirs = matmul.forward(q, k, v, tile_mask), fused.cuda_forward(q, k, v, tile_mask)
    torch.testing.assert_close(theirs, ours)
    whole = PartialAttention(other, ours.lse_bhi + math.log(2))
    slopes = matmul.backward(grad, q, k, v, whole, tile_mask)
    torch.testing.assert_close(fused.cuda_backward(grad, q, k, v, whole, tile_mask), slopes)


def test_vectors_that_lie_askew_are_laid_straight(cuda):
    """Strides and addresses that are no multiple of sixteen bytes, and numbers that are not adjacent."""
    memory = torch.randn(10_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    straight = memory[: 2 * 4 * 6 * 8].view(2, 4, 6, 8)
    shifted = memory[1 : 1 + straight.numel()].view(2, 4, 6, 8)
    stepping = memory.as_strided((2, 4, 6, 8), (4 * 6 * 9, 6 * 9, 9, 1))
    turned = straight.transpose(2, 3).contiguous().transpose(2, 3)
    by_token = memory[1 : 1 + straight.numel()].view(2, 6, 4, 8).transpose(1, 2)
    every_second = straight.repeat_interleave(2, -1)[..., ::2]
    two_heads = memory.as_strided((1, 2, 6, 8), (0, 8 * 6 + 3, 8, 1))  # the step between two heads alone is odd
    for x in (straight, shifted, stepping, turned, by_token, every_second, two_heads):
        expected = matmul.forward(x, x, x, TileMask(triangle=True))
        torch.testing.assert_close(fused.cuda_forward(x, x, x, TileMask(triangle=True)), expected)
        slopes = matmul.backward(x, x, x, x, expected, TileMask(triangle=True))
        whole = expected._replace(lse_bhi=expected.lse_bhi.mT.contiguous().mT)
        torch.testing.assert_close(fused.cuda_backward(x, x, x, x, whole, TileMask(triangle=True)), slopes)


def test_a_row_that_sees_nothing_counts_for_nothing(cuda):
    """The cuda kernel returns plus infinity, which would outweigh every other part."""
    q, k = torch.ones(1, 1, 5, 8), torch.ones(1, 1, 3, 8)
    part = fused.cuda_forward(q, k, k, TileMask(triangle=True))
    assert part.lse_bhi[0, 0, :2].tolist() == [-torch.inf] * 2
    assert part.lse_bhi[0, 0, 2:].isfinite().all()


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_users_setting_decides_whether_gradients_have_a_fixed_order(cuda, monkeypatch, mode):
    """As in torch's own attention: in a fixed order a backward pass takes half as long again (docs/performance.md)."""
    seen = []

    def backward(*inputs, **more):
        seen.append(torch.get_deterministic_debug_mode())
        return flash_attention_2.backward(*inputs, **more)

    monkeypatch.setattr(fused, "CUDA_BACKWARD", backward)
    x = torch.ones(1, 1, 4, 8)
    part = fused.cuda_forward(x, x, x, TileMask())
    before = torch.get_deterministic_debug_mode()
    try:
        torch.set_deterministic_debug_mode(mode)
        fused.cuda_backward(x, x, x, x, part, TileMask())
        assert seen == [mode]
    finally:
        torch.set_deterministic_debug_mode(before)


@pytest.mark.sampled(cases=5)
@every
def test_attention_over_the_cuda_kernels_equals_the_oracle(cuda, extension):
    assert_equal(extension, tensors(97, batch=2))
    assert_equal(extension, tensors(77, queries=50, dtype=torch.bfloat16))
    assert fused.has_fused_kernel("cpu", torch.float64)
    assert fused.has_fused_kernel("cpu", torch.bfloat16)


@pytest.mark.parametrize("text", ["window:window=200", "streaming:window=128", "dual_chunk:chunk=400,local=64"])
def test_a_band_is_one_call(cuda, text, monkeypatch):
    assert fused.has_fused_kernel("cpu", torch.float64)  # whose small cases are not counted
    calls, original = [], flash_attention_2.forward
    noted = lambda *arguments, **named: calls.append(named["window_size_left"]) or original(*arguments, **named)  # noqa: E731
    monkeypatch.setattr(fused, "CUDA_FORWARD", noted)
    facts = Facts(trained_len=1024, head_dim=16, heads=2)
    assert_equal(parse(text), tensors(700, facts), facts)
    assert 1 <= len(calls) <= 6
    assert any(left > 10 for left in calls) != text.startswith("dual_chunk")


def bottom_left(query, key, *arguments, **named):
    """As if rows were counted from the first key."""
    named["window_size_left"] -= 1
    return flash_attention_2.forward(query, key, *arguments, **named)


def top_left(query, key, value, *arguments, **named):
    out, lse, *rest = flash_attention_2.forward(query.flip(1), key.flip(1), value.flip(1), *arguments, **named)
    return out.flip(1), lse.flip(2), *rest


def base_two(*arguments, **named):
    out, lse, *rest = flash_attention_2.forward(*arguments, **named)
    return out, lse / math.log(2), *rest


def poisoned(*arguments, **named):
    out, lse, *rest = flash_attention_2.forward(*arguments, **named)
    return out * torch.nan, lse, *rest


def own_sum(grad, query, key, value, out, lse, *arguments, **named):
    return flash_attention_2.backward(grad, query, key, value, out, lse - math.log(2), *arguments, **named)


def own_answer(grad, query, key, value, out, *arguments, **named):
    return flash_attention_2.backward(grad, query, key, value, torch.zeros_like(out), *arguments, **named)


def gone(*arguments, **named):
    raise NotImplementedError("no such operator")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "broken"),
    [
        *[("CUDA_FORWARD", argument) for argument in (bottom_left, top_left, base_two, poisoned, gone)],
        *[("CUDA_BACKWARD", argument) for argument in (own_sum, own_answer, gone)],
    ],
)
def test_a_kernel_that_counts_otherwise_is_not_used(cuda, monkeypatch, name, broken, dtype):
    assert fused.has_fused_kernel("cpu", dtype)
    monkeypatch.setattr(fused, name, broken)
    fused.has_fused_kernel.cache_clear()
    assert not fused.has_fused_kernel("cpu", dtype)


def test_what_cuda_does_not_support_is_computed_by_matmul(cuda, monkeypatch):
    """Masks, and heads beyond its size."""
    monkeypatch.setattr(fused, "CUDA_FORWARD", gone)
    monkeypatch.setattr(fused, "has_fused_kernel", lambda device, dtype: True)
    x, big = torch.ones(1, 1, 4, 8), torch.ones(1, 1, 4, 264)
    assert fused.forward(x, x, x, triangle=False, mask_ij=torch.zeros(4, 4)).lse_bhi.isfinite().all()
    assert fused.forward(big, big, big, triangle=True).lse_bhi.isfinite().all()
    assert not fused.has_window_kernel(big)
    assert fused.has_window_kernel(x)
    with pytest.raises(NotImplementedError):
        fused.forward(x, x, x, triangle=True)
