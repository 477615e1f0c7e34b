"""Retention: every key that a later query sees, and no other."""

import pytest
import torch

from ropewalk import parse
from ropewalk.attention.layout.retention import Retention, reach_retention, span_retention
from ropewalk.methods.reach import Span
from ropewalk.methods.reach.reach import after, always, itself

from examples import EXAMPLES

LENGTH = 300


@pytest.mark.parametrize("reach", EXAMPLES["reach"], ids=str)
def test_dropped_keys_are_never_seen_and_the_last_kept_one_is(reach):
    first, last = reach_retention(reach)
    i = torch.arange(LENGTH)
    seen = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    for span in reach.spans():
        start, stop = span.bounds(i)
        seen |= (start[:, None] <= i) & (i < stop[:, None])
    old = i[:, None] - i
    if last is None:
        assert seen[-1, :10].any(), "kept without need"
        return
    assert not (seen & ((old >= last) & (i >= first))).any()
    assert int(old[seen & (i >= first)].max()) + 1 == last, "kept longer than needed"
    assert first == 0 or seen[-1, first - 1], "a beginning kept without need"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("window:window=5", Retention(0, 5)),
        ("bca:block=8", Retention(0, 8)),
        ("streaming:window=6,n_sink=2", Retention(2, 6)),
        ("lm_infinite:window=9,n_sink=3", Retention(3, 9)),
        ("window:window=1", Retention(0, 1)),
        ("rerope:window=5", Retention(0, None)),
        ("dual_chunk:chunk=9,local=4", Retention(0, None)),
        ("string:shift=9,local=4", Retention(0, None)),
        ("self_logistic:window=8,capacity=5,rate=0.3", Retention(0, None)),
        ("lampe:head=6,tail=3,length=60,mapped=20", Retention(0, None)),
    ],
)
def test_by_hand(text, expected):
    assert reach_retention(parse(text).reach_or_causal) == expected


@pytest.mark.parametrize("size", [10**6, 2**35])
def test_large_windows_and_steps(size):
    assert span_retention(parse(f"window:window={size}").reach_or_causal.spans()[0]) == Retention(0, size)
    assert span_retention(parse(f"bca:block={2 * (size // 4)}").reach_or_causal.spans()[0]) == Retention(
        0, 2 * (size // 4)
    )


def test_a_beginning_and_everything():
    assert span_retention(Span(always(0), always(7), itself, itself)) == Retention(7, 0)
    assert span_retention(Span(always(0), after, itself, itself)) == Retention(0, None)
    assert Retention(3, 0) | Retention(0, 8) == Retention(3, 8)
    assert Retention(3, 8) | Retention(0, None) == Retention(0, None)
