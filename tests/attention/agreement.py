"""The fast paths against the definition: outputs and gradients, for the same arguments."""

import torch

from ropewalk import reference_attention
from ropewalk.attention import attend


def require_agreement(inputs, extension, facts, seed, **arguments):
    """Both give the same output, and the same gradients of a random sum of it."""
    q, k, v = inputs
    out, expected = (function(q, k, v, extension, facts, **arguments) for function in (attend, reference_attention))
    assert torch.allclose(out.double(), expected, atol=1e-5)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(seed))
    grads = (torch.autograd.grad((answer * weight).sum(), (q, k, v)) for answer in (out, expected))
    for got, right in zip(*grads, strict=True):
        assert torch.allclose(got, right, atol=1e-4)
