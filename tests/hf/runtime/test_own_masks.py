"""The masks that layers are called with and hand to attention, by hand."""

import pytest
import torch

from ropewalk.attention.scoped import scoped
from ropewalk.hf.probe.probed_layer import CachedLayer
from ropewalk.hf.runtime.forward_pass import CURRENT, make_pass
from ropewalk.hf.runtime.own_masks import call_with_mask, model_mask
from ropewalk.methods.reach import Causal, Window

KEYS = torch.zeros(2, 1, 4, 8)
INF = torch.inf


def test_flags_and_lowest_numbers_hide_keys_and_other_numbers_stay():
    flags = torch.tensor([True, False, True, True]).expand(2, 1, 3, 4)
    assert model_mask(flags, None, KEYS)[1, 0, 2].tolist() == [0, -INF, 0, 0]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        numbers = torch.tensor([0.5, torch.finfo(dtype).min, -3, -INF], dtype=dtype).expand(2, 4, 3, 4)
        got = model_mask(numbers, None, KEYS)
        assert got.dtype == dtype
        assert got[0, 3, 1].tolist() == [0.5, -INF, -3, -INF]


def test_chosen_keys_are_what_is_left():
    chosen = torch.tensor([[[0, 1], [1, 3]], [[2, 0], [3, 3]]], dtype=torch.int32)
    got = model_mask(None, chosen, KEYS)
    assert got.shape == (2, 1, 2, 4)
    assert (got == 0)[:, 0].long().tolist() == [[[1, 1, 0, 0], [0, 1, 0, 1]], [[1, 0, 1, 0], [0, 0, 0, 1]]]
    before = torch.tensor([1.0, 2.0, torch.finfo(torch.float32).min, 4.0]).expand(2, 1, 2, 4)
    assert model_mask(before, chosen, KEYS)[1, 0, 0].tolist() == [1, -INF, -INF, -INF]


def test_without_a_mask_there_is_none():
    assert model_mask(None, None, KEYS) is None


def called(reach, arguments, dtype=torch.float32, places=(None,)):
    """Which keys a layer is shown, 1 or 0."""
    now = make_pass(arguments, places)
    hidden = torch.zeros(*arguments["input_ids"].shape, 8, dtype=dtype)
    with scoped(CURRENT, now):
        _, kwargs = call_with_mask(0, reach, None, (hidden,), {"attention_mask": None})
    mask = kwargs["attention_mask"]
    assert mask.dtype == dtype
    assert set(mask.unique().tolist()) <= {0.0, torch.finfo(dtype).min}
    return (mask == 0)[:, 0].long().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_layer_is_shown_what_its_reach_shows(dtype):
    ids = {"input_ids": torch.zeros(1, 4, dtype=torch.long)}
    assert called(Causal(), ids, dtype) == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]]
    assert called(Window(window=2), ids) == [[[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]]


def test_padding_and_other_texts_are_hidden():
    ids = torch.zeros(2, 3, dtype=torch.long)
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]])
    assert called(Causal(), {"input_ids": ids, "attention_mask": mask})[1] == [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    packed = {"input_ids": ids, "position_ids": torch.tensor([[0, 1, 0]]).expand(2, -1)}
    assert called(Causal(), packed)[0] == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


class Blank:
    """A cache of four keys' room, of which two are read; it returns those from slot 1 on."""

    def get_query_offset(self, slot):
        return 2

    def get_mask_sizes(self, queries, slot):
        return 4, 1


def test_blank_room_of_a_cache_is_hidden_and_dropped_keys_are_counted():
    place = CachedLayer(0, 0, 1, 0)
    arguments = {"input_ids": torch.zeros(1, 1, dtype=torch.long), "past_key_values": Blank()}
    assert called(Causal(), arguments, places=[place]) == [[[1, 1, 0, 0]]]
    assert called(Window(window=1), arguments, places=[place]) == [[[0, 1, 0, 0]]]


def test_outside_a_pass_nothing_is_handed_over():
    assert call_with_mask(0, Causal(), None, (torch.zeros(1, 2, 8),), {}) is None
