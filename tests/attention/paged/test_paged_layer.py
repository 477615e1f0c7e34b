"""Attention over pages equals the oracle, for any mix of requests, chunks, page orders and extensions."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from ropewalk import parse
from ropewalk.attention.paged import PagedLayer
from ropewalk.attention.problem import layer_terms
from ropewalk.errors import DoesNotFit, InvalidValue

from attention.paged.server import FACTS, LINES, Server, line


@pytest.mark.parametrize("text", LINES)
def test_equals_the_oracle(text):
    """Chunks, single tokens and a few at once, of requests with unequal lengths, in one batch."""
    server = Server(line(text))
    for length in (120, 90, 40):
        server.add(length)
    for counts in ([50, 9, 1], [1, 1, 1], [30, 3, 20], [8, 60, 1], [1, 1, 0], [1, 1, 9], [1, 1, 1]):
        server.check(counts)


@pytest.mark.nightly
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_schedule_of_requests(data):
    extension = line(data.draw(st.sampled_from(LINES)))
    server = Server(extension, size=data.draw(st.sampled_from([1, 2, 5, 16])), seed=data.draw(st.integers(0, 99)))
    steps = data.draw(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=5))
    most = max(len(step) for step in steps)
    for _ in range(most):
        server.add(200)
    for step in steps:
        server.check([*step, *[0] * (most - len(step))])


@pytest.mark.parametrize("text", ["rope", "streaming:window=12", "rerope:window=8", "dynamic_yarn", "log_n"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision(text, dtype):
    server = Server(line(text), dtype=dtype)
    server.add(70)
    for counts in ([60], [1], [1], [3]):
        server.check(counts, 5e-6 if dtype == torch.float32 else 4e-2)


def test_sinks_factors_cap_partial_rotation_and_neighbours():
    facts = replace(FACTS, rotary_dim=4, interleaved=True, softcap=3.0, sinks=True, weighted=True)
    of_model = {"sinks": torch.randn(4), "after_rotation": 0.5 + torch.rand(8)}
    for text in ("rerope:window=8", "yarn:factor=4", "dynamic_yarn"):
        server = Server(line(text), facts, weights={"model": of_model})
        server.add(70)
        for counts in ([50], [1], [1], [3]):
            server.check(counts)


@pytest.mark.parametrize("text", LINES)
@pytest.mark.parametrize("before", [40, 400])
def test_a_row_does_not_depend_on_its_neighbours(text, before):
    """Bit for bit, alone or together."""
    alone, together = (Server(line(text), dtype=torch.float32, seed=3) for _ in range(2))
    for server in (alone, together):
        server.add(before + 30)
    together.add(70)
    for count, neighbour in ((before, 25), (1, 1), (1, 1)):
        assert torch.equal(alone.step([count])[0], together.step([count, neighbour])[0])


def test_pages_shared_at_different_lengths():
    """Two requests begin with the same pages, and stand in different stages of a dynamic schedule."""
    server = Server(line("dynamic_yarn"), size=8)
    for _ in range(2):
        server.add(120)
    server.texts[1] = [part.clone() for part in server.texts[0]]
    server.step([16, 0])
    server.tables[1], server.lengths[1] = list(server.tables[0]), 16
    for counts in ([80, 0], [1, 1], [1, 1], [1, 1]):
        server.check(counts)


def test_freed_pages_are_not_read():
    """What the retention lets go may hold any number."""
    server = Server(line("streaming:window=12"))
    server.add(120)
    server.step([60])
    keep = server.layer.retention
    assert (keep.first, keep.last) == (4, 12)
    for place in range(1, (60 - keep.last) // server.size):
        server.pages[server.tables[0][place]] = 1e30
    for counts in ([1], [1], [20], [1]):
        server.check(counts)


def test_memory_is_stated_by_the_lanes():
    lanes = {text: PagedLayer(layer_terms(line(text), FACTS)).lanes for text in LINES}
    one_placement = ("rope", "log_n", "streaming:window=12", "dual_chunk:chunk=16,local=4", "string:shift=10,local=4")
    assert {lanes[text] for text in (*one_placement, "nope")} == {2}
    assert {lanes[text] for text in ("rerope:window=8", "self_extend:window=8,group=4", "dynamic_yarn")} == {3}


def test_stages_are_needed_where_the_table_changes():
    server = Server(line("dynamic_yarn"))
    server.stages = None
    server.add(10)
    with pytest.raises(InvalidValue, match="stages must be stated where the table changes with the row"):
        server.step([10])


def test_refusals():
    with pytest.raises(DoesNotFit, match="keys of xpos decay with the position, and cannot be kept"):
        PagedLayer(layer_terms(parse("xpos"), FACTS))
    with pytest.raises(InvalidValue, match="positions must be sequential with pages"):
        PagedLayer(layer_terms(parse("randomized:limit=64"), FACTS))
