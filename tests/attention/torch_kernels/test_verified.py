"""The check of torch's kernels, and the matmul that replaces them."""

import pytest
import torch

from ropewalk.attention.torch_kernels import fused
from ropewalk.attention.torch_kernels.fused import PartialAttention


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_kernels_of_this_torch_are_used(dtype):
    assert fused.has_fused_kernel("cpu", dtype)


@pytest.fixture
def used_with(monkeypatch):
    """Whether a kernel is used where another stands in its place, checked anew; without that one it is."""

    def used(name, kernel, dtype, check=fused.has_fused_kernel):
        with monkeypatch.context() as patched:
            patched.setattr(fused, name, kernel)
            check.cache_clear()
            answer = check("cpu", dtype)
        check.cache_clear()
        assert check("cpu", dtype)
        return answer

    return used


def test_a_wrong_kernel_is_not_used(used_with):
    original = fused.CPU_FORWARD

    def base_two(*arguments, **named):
        out, lse = original(*arguments, **named)
        return out, lse / torch.log(torch.tensor(2.0))

    def gone(*arguments, **named):
        raise RuntimeError("no such operator")

    for broken in (base_two, gone):
        assert not used_with("CPU_FORWARD", broken, torch.float32)


def ignores(mask):
    """The CPU's kernels, but that this part of a mask counts for nothing."""

    def broken(kernel):
        def call(*arguments, attn_mask=None):
            return kernel(*arguments, attn_mask=None if attn_mask is None else mask(attn_mask))

        return call

    return broken


@pytest.mark.parametrize("name", ["CPU_FORWARD", "CPU_BACKWARD"])
@pytest.mark.parametrize("mask", [torch.zeros_like, lambda mask: mask.T], ids=["no mask", "rows for keys"])
def test_a_kernel_that_reads_masks_otherwise_is_not_used(used_with, name, mask):
    """Blocks of a band, packed texts and padding are computed by masks."""
    assert not used_with(name, ignores(mask)(getattr(fused, name)), torch.float32)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32], ids=str)
def test_masks_are_read_in_both_precisions(used_with, precision):
    """Of half precision: a mask comes in the model's type and in the one that is computed with."""
    original = fused.CPU_FORWARD

    def refuses(*arguments, attn_mask=None):
        if attn_mask is not None and attn_mask.dtype == precision:
            raise RuntimeError("mask of a type that this kernel does not take")
        return original(*arguments, attn_mask=attn_mask)

    assert not used_with("CPU_FORWARD", refuses, torch.bfloat16)


def test_a_kernel_that_is_wrong_for_a_single_query_computes_no_steps(used_with):
    """CUDA's kernel takes another path there; what is wrong with it must not cost the kernel for whole texts."""
    original = fused.CPU_FORWARD

    def wrong_for_one(q, *arguments, **named):
        out, lse = original(q, *arguments, **named)
        return out, lse + (q.shape[2] == 1)

    assert used_with("CPU_FORWARD", wrong_for_one, torch.bfloat16)
    assert not used_with("CPU_FORWARD", wrong_for_one, torch.bfloat16, fused.has_step_kernel)


def test_running_out_of_memory_is_no_fault_of_a_kernel(monkeypatch):
    def full(*arguments, **named):
        raise torch.OutOfMemoryError

    fused.has_fused_kernel.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(fused, "CPU_FORWARD", full)
        with pytest.raises(torch.OutOfMemoryError):
            fused.has_fused_kernel("cpu", torch.float32)
    assert fused.has_fused_kernel("cpu", torch.float32)


@pytest.fixture
def no_kernels(monkeypatch):
    monkeypatch.setattr(fused, "has_fused_kernel", lambda device, dtype: False)


def test_there_is_none_for_a_device_that_torch_has_no_kernels_for():
    assert not fused.has_fused_kernel("mps", torch.float32)
    why = fused.why_no_kernel(torch.device("mps"), torch.float32, 64)
    assert why == "torch has no such kernel for torch.float32 on mps"


def test_heads_may_be_too_large(monkeypatch):
    monkeypatch.setattr(fused, "has_fused_kernel", lambda device, dtype: True)
    half = torch.bfloat16
    assert fused.why_no_kernel(torch.device("cuda"), half, 256) is None
    assert fused.why_no_kernel(torch.device("cuda"), half, 264) == "torch's kernel for cuda takes heads of at most 256"
    assert fused.why_no_kernel(torch.device("cpu"), half, 264) is None


@pytest.mark.parametrize("triangle", [False, True])
def test_the_matmul_is_the_definition(no_kernels, triangle):
    rng = torch.Generator().manual_seed(0)
    q, grad = torch.randn(2, 1, 4, 300, 8, generator=rng, dtype=torch.float64)
    k, v = torch.randn(2, 1, 2, 300, 8, generator=rng, dtype=torch.float64)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    logit = q @ k.repeat_interleave(2, 1).mT / 8**0.5
    if triangle:
        logit = logit.masked_fill(torch.ones(300, 300).triu(1).bool(), -torch.inf)
    expected = logit.softmax(-1) @ v.repeat_interleave(2, 1)
    expected.backward(grad)
    part = fused.forward(q.detach(), k.detach(), v.detach(), triangle=triangle)
    torch.testing.assert_close(part, PartialAttention(expected.detach(), logit.logsumexp(-1).detach()))
    slopes = fused.backward(grad, q.detach(), k.detach(), v.detach(), part, triangle=triangle)
    for got, leaf in zip(slopes, (q, k, v), strict=True):
        torch.testing.assert_close(got, leaf.grad)


def test_attention_is_the_same_without_the_kernels(no_kernels):
    from ropewalk import parse

    from attention.problems import assert_equal, tensors

    for text in ("rerope:window=5", "streaming:window=6,n_sink=2", "dual_chunk:chunk=8,local=3", "dynamic_yarn"):
        assert_equal(parse(text), tensors(90, batch=2))
