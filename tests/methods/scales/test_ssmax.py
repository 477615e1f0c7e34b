"""SSMax against its paper's formula, n^(s z) over the sum of n^(s z), one number at a time; in answers and slopes."""

import math

import pytest
import torch

from ropewalk import Facts, extended, parse
from ropewalk.attention import attend
from ropewalk.hf.attach.handle import handle_of

from hf.models import tiny

FACTS = Facts(trained_len=16, head_dim=4, heads=2)
S = [0.7, 0.2]


def drawn():
    return torch.randn(3, 1, 2, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def by_the_paper(q, k, v, s):
    """Rows of one head: z is q k / sqrt(d), and e is replaced by the number of keys."""
    rows = []
    for i in range(len(q)):
        n = i + 1
        z = [math.fsum(a * b for a, b in zip(q[i], k[j], strict=True)) / math.sqrt(4) for j in range(n)]
        powers = [n ** (s * x) for x in z]
        rows.append([math.fsum(p * v[j][d] for j, p in enumerate(powers)) / math.fsum(powers) for d in range(4)])
    return rows


def test_attention_is_the_papers():
    q, k, v = drawn()
    weights = {"ssmax": {"s": torch.tensor(S, dtype=torch.float64)}}
    got = attend(q, k, v, parse("nope+ssmax"), FACTS, weights=weights)
    for head, s in enumerate(S):
        expected = by_the_paper(*(x[0, head].tolist() for x in (q, k, v)), s)
        assert got[0, head].tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize("head", [0, 1])
def test_the_slope_of_s_is_that_of_the_papers_formula(head):
    q, k, v = drawn()
    s = torch.tensor(S, dtype=torch.float64, requires_grad=True)
    attend(q, k, v, parse("nope+ssmax"), FACTS, weights={"ssmax": {"s": s}})[0, head].sum().backward()
    lists = [x[0, head].tolist() for x in (q, k, v)]
    above, below = (math.fsum(map(math.fsum, by_the_paper(*lists, S[head] + step))) for step in (1e-5, -1e-5))
    assert s.grad[head] == pytest.approx((above - below) / 2e-5, rel=1e-6)
    assert s.grad[1 - head] == 0


def test_s_learns_in_every_layer_of_a_model():
    model = tiny("llama")
    ids = torch.randint(3, 97, (2, 40), generator=torch.Generator().manual_seed(1))
    with extended(model, "ssmax"):
        layers = handle_of(model).layers
        parameters = [layer.probed.module.ropewalk_ssmax_s for layer in layers]
        before = [parameter.detach().clone() for parameter in parameters]
        assert len(before) == model.config.num_hidden_layers
        optimizer = torch.optim.SGD(parameters, lr=1.0)
        model(ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        for parameter, start in zip(parameters, before, strict=True):
            assert parameter.shape == (model.config.num_attention_heads,)
            assert (parameter != start).all()
