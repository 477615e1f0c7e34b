"""Tokens that see later ones, as those of one image do: the span with a query's own key goes on to the last of them."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from ropewalk import DoesNotFit, Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import attend, dispatch
from ropewalk.equation import reference_weights
from ropewalk.extension.inputs import PAD

from attention.agreement import require_agreement

FACTS = Facts(trained_len=16, head_dim=8, heads=2, kv_heads=1)
TEXTS = [
    *("rope", "yarn:factor=4+log_n", "dynamic_yarn", "dynamic_ntk", "rerope:window=8", "streaming:window=8,n_sink=2"),
    *("self_extend:window=8,group=2", "window:window=9", "string:shift=6,local=2"),
]


def inputs(queries, keys, seed=0, batch=2):
    draw = torch.Generator().manual_seed(seed)
    sizes = ((batch, 2, queries, 8), (batch, 1, keys, 8), (batch, 1, keys, 8))
    return [torch.randn(*size, generator=draw).requires_grad_() for size in sizes]


def blocks(keys, bounds):
    """The last key that each token sees: the end of its block, or itself."""
    seen = torch.arange(keys)
    for first, last in bounds:
        seen[first : last + 1] = torch.maximum(seen[first : last + 1], torch.tensor(min(last, keys - 1)))
    return seen


@settings(deadline=None, max_examples=80)
@given(
    text=st.sampled_from(TEXTS),
    keys=st.integers(1, 60),
    share=st.floats(0.05, 1),
    bounds=st.lists(st.tuples(st.integers(0, 59), st.integers(0, 59)).map(sorted), max_size=3),
    padding=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_the_fast_paths_equal_the_definition(text, keys, share, bounds, padding, seed):
    numbers = torch.stack([torch.arange(keys), (torch.arange(keys) - padding).clamp(min=PAD)])
    seen = torch.stack([blocks(keys, bounds), (blocks(keys, bounds) - padding).clamp(min=PAD)])
    arguments = {"tokens": Tokens(numbers, last_seen_bj=seen)}
    require_agreement(inputs(max(1, round(share * keys)), keys, seed), parse(text), FACTS, seed, **arguments)


def test_a_block_across_many_tables_is_read_whole(monkeypatch):
    """Rows of one table are computed apart from the next."""
    monkeypatch.setattr(dispatch, "MOST_TABLES", 1)
    q, k, v = inputs(40, 40, batch=1)
    seen = blocks(40, [(18, 33)])[None]
    out, expected = (
        function(q, k, v, parse("dynamic_ntk"), FACTS, Tokens(last_seen_bj=seen))
        for function in (attend, reference_attention)
    )
    assert torch.allclose(out.double(), expected, atol=1e-5)


@pytest.mark.parametrize("text", TEXTS)
def test_a_block_sees_exactly_itself_and_what_it_saw_before(text):
    q, k, _ = inputs(20, 20, batch=1)
    seen = blocks(20, [(5, 9)])[None]
    with_block, without = (
        reference_weights(q, k, parse(text), FACTS, Tokens(last_seen_bj=x)) > 0 for x in (seen, torch.arange(20)[None])
    )
    later = torch.zeros(20, 20, dtype=torch.bool)
    later[5:10, 5:10] = torch.ones(5, 5).triu(1).bool()
    assert torch.equal(with_block, without | later)


@pytest.mark.parametrize(("text", "field"), [("alibi", "alibi"), ("dual_chunk:chunk=8,local=3", "dual_chunk")])
def test_what_is_defined_for_earlier_keys_only_is_refused(text, field):
    for function in (attend, reference_attention):
        with pytest.raises(DoesNotFit, match=f"{field} is not defined for later keys"):
            function(*inputs(20, 20, batch=1), parse(text), FACTS, Tokens(last_seen_bj=blocks(20, [(5, 9)])[None]))


@pytest.mark.parametrize("seen", [torch.zeros(1, 19, dtype=torch.long), torch.zeros(1, 20)])
def test_other_shapes_and_fractions_are_refused(seen):
    for function in (attend, reference_attention):
        with pytest.raises(InvalidValue, match=r"last_seen_bj must be whole numbers of shape \(1, 20\)"):
            function(*inputs(20, 20, batch=1), parse("rope"), FACTS, Tokens(last_seen_bj=seen))
