"""Shared results are those that would have been computed: by content, during one pass, once."""

import pytest
import torch

from ropewalk import extended
from ropewalk.attention import dispatch
from ropewalk.attention.cache import buffers
from ropewalk.attention.layout.sequences import MOST_NUMBERS, SharedLayout, compute_once, share_results

from hf.models import tiny


def made_of(calls, tensors, spec=("spec",), **kwargs):
    return compute_once(
        "sum", spec, tensors, lambda: calls.append(1) or sum(int(tensor.sum()) for tensor in tensors), **kwargs
    )


def test_the_same_content_is_made_once():
    calls, shared = [], SharedLayout()
    with share_results(shared):
        first, again = (made_of(calls, (torch.arange(4), torch.arange(3))) for _ in range(2))
        assert (first, again, len(calls)) == (9, 9, 1)
        assert made_of(calls, (torch.arange(4), torch.arange(5))) == 16
        assert made_of(calls, (torch.arange(4, dtype=torch.int32), torch.arange(3))) == 9
        assert made_of(calls, (torch.arange(4), torch.arange(3)), spec=("other",)) == 9
    assert len(calls) == 4
    with share_results(shared):
        made_of(calls, (torch.arange(4), torch.arange(3)))
    assert len(calls) == 4


def test_nothing_is_stored_outside_a_pass_or_beyond_the_limit():
    calls = []
    for _ in range(2):
        made_of(calls, (torch.arange(4),))
    with share_results(SharedLayout()):
        for _ in range(2):
            made_of(calls, (torch.arange(4),), size=MOST_NUMBERS + 1)
    assert len(calls) == 4


@pytest.mark.parametrize("text", ["rerope:window=8", "window:window=8+log_n", "dynamic_yarn", "hwfa"])
@pytest.mark.parametrize("cached", [True, False])
def test_layers_of_one_pass_share_and_answer_the_same(text, cached, monkeypatch):
    """Of four layers, hwfa's last one differs."""
    model, ids = tiny("llama"), torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    calls, original = [], dispatch.segments_of
    monkeypatch.setattr(dispatch, "segments_of", lambda *arguments: calls.append(1) or original(*arguments))
    with extended(model, text), torch.no_grad():
        calls.clear()
        shared = model(input_ids=ids, attention_mask=mask, use_cache=cached).logits
        few = len(calls)
        monkeypatch.setattr("ropewalk.attention.layout.sequences.MOST_NUMBERS", -1)
        alone = model(input_ids=ids, attention_mask=mask, use_cache=cached).logits
    kinds = 2 if text == "hwfa" else 1
    assert (few, len(calls) - few) == (2 * kinds, 2 * 4)
    assert torch.equal(shared, alone)


@pytest.mark.parametrize("text", ["rerope:window=8", "self_extend:window=8,group=4", "streaming:window=8"])
@torch.no_grad()
def test_layers_with_a_cache_rotate_new_keys_by_the_same_angles(monkeypatch, text):
    """A chunk behind others: however many layers there are, its angles are computed once."""
    calls, real = [], buffers.rotation_at
    monkeypatch.setattr(buffers, "rotation_at", lambda *args: calls.append(1) or real(*args))
    counts = []
    for layers in (2, 5):
        model = tiny("llama", num_hidden_layers=layers)
        with extended(model, text):
            cache = model(torch.arange(20)[None], use_cache=True).past_key_values
            calls.clear()
            model(torch.arange(20, 32)[None], past_key_values=cache, use_cache=True)
        counts.append(len(calls))
    assert counts[0] == counts[1] > 0
