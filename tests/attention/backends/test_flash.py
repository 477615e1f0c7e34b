"""Batch rows that share a kernel's call."""

import pytest
import torch

from ropewalk import Facts, parse, reference_attention
from ropewalk.attention import attend
from ropewalk.attention.backends import flash

FACTS = Facts(trained_len=16, head_dim=8, heads=4, kv_heads=2)


def vectors(batch, queries, keys):
    """With the numbers of a head apart in memory, as a model and a cache have them."""
    rng = torch.Generator().manual_seed(0)
    sizes = [(queries, 4), (keys, 2), (keys, 2)]
    return [torch.randn(batch, count, heads, 8, generator=rng).transpose(1, 2) for count, heads in sizes]


@pytest.mark.parametrize(("tokens", "calls"), [(30, 5), (60, 3), (150, 1), (1000, 1)])
@pytest.mark.parametrize("text", ["window:window=6", "rerope:window=5+log_n", "rerope_by_parts+far_discount"])
def test_short_rows_share_calls_and_stay_apart(monkeypatch, text, tokens, calls):
    """The last group has fewer rows, the last gradients have fewer blocks; each row keeps its own keys in both."""
    monkeypatch.setattr(flash, "TOKENS_AT_ONCE", tokens)
    monkeypatch.setattr(flash, "BACKWARD_ROWS", dict.fromkeys(flash.BACKWARD_ROWS, 4))
    monkeypatch.setattr(flash, "KEYS_AT_ONCE", 40)
    extension, given = parse(text, trained_len=16, target_len=64), vectors(5, 30, 30)
    answers = []
    for compute in (attend, reference_attention):
        leaves = [x.detach().requires_grad_() for x in given]
        answer = compute(*leaves, extension, FACTS)
        answer.double().square().sum().backward()
        answers.append([answer.double(), *(x.grad.double() for x in leaves)])
    for ours, right in zip(*answers, strict=True):
        torch.testing.assert_close(ours, right, rtol=0, atol=2e-5)
    assert len(flash._rows_of_one_call(5, given[1:2])) == calls


def test_a_row_of_many_keys_is_computed_alone():
    """However few its queries are: its keys would be copied."""
    _, keys, _ = vectors(3, 1, 2 * flash.TOKENS_AT_ONCE)
    assert len(flash._rows_of_one_call(3, [keys])) == 3
    assert flash._row(keys, slice(1, 2)).data_ptr() == keys[1].data_ptr()
