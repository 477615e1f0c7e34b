"""What masks let a query see: what is known is what the mask shows, and what is not known is refused or asked."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import masking_utils
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    blockwise_overlay,
    causal_mask_function,
    chunked_causal_mask_function,
    chunked_overlay,
    or_masks,
    packed_sequence_mask_function,
    sdpa_mask,
    sliding_window_causal_mask_function,
    sliding_window_overlay,
)

from ropewalk import DoesNotFit
from ropewalk.hf.probe.capture import MaskReach, last_seen, recognize

LENGTH = 17
IDS = torch.tensor([[-1] * 5 + [0] * 4 + [-1] * 3 + [1] * 5])
NONE = torch.full((1, LENGTH), -1)
ONE_TEXT = torch.zeros(1, LENGTH, dtype=torch.long)


def shown(function, queries=LENGTH):
    """The mask itself."""
    places = {"batch_size": 1, "q_length": queries, "kv_length": LENGTH, "q_offset": LENGTH - queries, "kv_offset": 0}
    return sdpa_mask(mask_function=function, allow_is_causal_skip=False, **places)[0, 0]


def required(function, queries=LENGTH):
    places = {"batch_size": 1, "q_length": queries, "kv_length": LENGTH, "q_offset": LENGTH - queries, "kv_offset": 0}
    return last_seen(function, use_vmap=False, device="cpu", **places)


def renumbered(function):
    """As transformers does with packed texts, from 5.20 on."""
    remap = getattr(masking_utils, "remap_positions_for_packed_sequence", None)
    return remap(function, torch.arange(LENGTH)[None]) if remap else function


LEAVES = st.one_of(
    st.just(causal_mask_function),
    st.integers(1, LENGTH + 2).map(sliding_window_overlay),
    st.integers(1, LENGTH + 2).map(sliding_window_causal_mask_function),
    st.just(packed_sequence_mask_function(ONE_TEXT)),
    st.just(bidirectional_mask_function),
    st.integers(1, LENGTH).map(lambda size: chunked_overlay(size, torch.zeros(1, dtype=torch.long))),
    st.sampled_from([IDS, NONE]).map(blockwise_overlay),
)
FUNCTIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: and_masks(*parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: or_masks(*parts)),
        inner.map(renumbered),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(FUNCTIONS, st.integers(1, LENGTH))
def test_what_is_known_or_let_through_is_what_the_mask_shows(function, queries):
    i, j = torch.arange(LENGTH - queries, LENGTH)[:, None], torch.arange(LENGTH)
    seen = recognize(function)
    if seen is not None:
        expected = (j <= i) if seen.causal else torch.ones(queries, LENGTH, dtype=torch.bool)
        expected = expected if seen.window is None else expected & (j > i - seen.window)
        expected = expected if seen.chunk is None else expected & (j // seen.chunk == i // seen.chunk)
        assert torch.equal(shown(function, queries), expected)
    try:
        last = required(function, queries)
    except DoesNotFit:
        return
    mask = shown(function, queries)  # then it is causal, and hides what a window or chunks hide and nothing else
    later = torch.zeros_like(mask) if last is None else (j > i) & (j <= last[0][:, None])
    sizes = range(1, LENGTH + 3)
    like = [(j <= i) & (j > i - size) for size in sizes] + [(j <= i) & (j // size == i // size) for size in sizes]
    assert any(torch.equal(mask, one | later) for one in like)


def test_transformers_own_masks_are_known():
    assert recognize(causal_mask_function) == MaskReach(True)
    assert recognize(sliding_window_causal_mask_function(9)) == MaskReach(True, 9)
    both = and_masks(packed_sequence_mask_function(ONE_TEXT), sliding_window_causal_mask_function(9))
    assert recognize(both) == MaskReach(True, 9)
    chunks = chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.long))
    assert recognize(chunks) == MaskReach(True, chunk=4)


ODD = torch.arange(LENGTH)[None] % 2
CHUNKS = [chunked_overlay(size, torch.zeros(1, dtype=torch.long)) for size in (4, 3)]
UNKNOWN = {
    "not causal": bidirectional_mask_function,
    "chunks that are not causal": CHUNKS[0],
    "chunks of two sizes": and_masks(*CHUNKS, causal_mask_function),
    "chunks and a window": and_masks(CHUNKS[0], sliding_window_causal_mask_function(3)),
    "tokens apart that see each other": or_masks(causal_mask_function, blockwise_overlay(1 - ODD)),
    "a union that hides": or_masks(sliding_window_causal_mask_function(3), blockwise_overlay(IDS)),
}


@pytest.mark.parametrize("function", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_causal_or_hides_otherwise_is_refused(function):
    with pytest.raises(DoesNotFit, match="attention mask must be causal"):
        required(function)


def test_token_types_that_are_all_alike_are_causal_and_others_see_up_to_the_last_of_their_block():
    assert required(or_masks(causal_mask_function, blockwise_overlay(NONE))) is None
    last = required(or_masks(causal_mask_function, blockwise_overlay(IDS)))
    assert last.tolist() == [[0, 1, 2, 3, 4, 8, 8, 8, 8, 9, 10, 11, 16, 16, 16, 16, 16]]
    assert required(or_masks(causal_mask_function, bidirectional_mask_function)).tolist() == [[LENGTH - 1] * LENGTH]
