"""The backward pass by blocks, against autograd through all logits."""

import math

import pytest
import torch

from ropewalk.attention.backends import bias_diagonals as diagonal_gradients
from ropewalk.attention.torch_kernels.fused import PartialAttention


@pytest.mark.parametrize(
    "keys",
    [
        1,
        7,
        diagonal_gradients.KEYS_PER_BLOCK,
        diagonal_gradients.KEYS_PER_BLOCK + 1,
        2 * diagonal_gradients.KEYS_PER_BLOCK + 30,
    ],
)
@pytest.mark.parametrize("rows", [1, 5, 256])
def test_gradients_and_sums_along_diagonals(rows, keys):
    rng = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64).requires_grad_()  # noqa: E731
    q, k, v, line = draw(2, 4, rows, 8), draw(2, 2, keys, 8), draw(2, 2, keys, 8), draw(4, rows + keys - 1)
    index = torch.arange(rows)[:, None] + torch.arange(keys)
    logit = q @ k.repeat_interleave(2, 1).mT / math.sqrt(8) + line[:, index]
    out, grad = torch.softmax(logit, -1) @ v.repeat_interleave(2, 1), draw(2, 4, rows, 8).detach()
    out.backward(grad)
    part = PartialAttention(out.detach(), torch.logsumexp(logit, -1).detach())
    mask = line.detach().as_strided((4, rows, keys), (rows + keys - 1, 1, 1))
    gradients = diagonal_gradients.backward(grad, q.detach(), k.detach(), v.detach(), part, mask)
    for got, expected in zip((*gradients.vectors, gradients.line_hx), (q.grad, k.grad, v.grad, line.grad), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


def test_hidden_keys_have_no_part_in_it():
    q, k, v, grad = torch.randn(4, 1, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[0.0, 0.0, -torch.inf], [0.0, -torch.inf, -torch.inf], [0.0, -torch.inf, -torch.inf]])[None]
    logit = q @ k.mT / 2 + mask
    part = PartialAttention(torch.softmax(logit, -1) @ v, torch.logsumexp(logit, -1))
    gradients = diagonal_gradients.backward(grad, q, k, v, part, mask)
    assert not gradients.vectors.k_bgjd[:, :, 2].any()
    assert not gradients.vectors.v_bgjd[:, :, 2].any()
    assert not gradients.line_hx[:, 2:].any()
    assert gradients.line_hx[:, :2].any()
