"""Everything that attention computes with is on the device of the vectors, though layouts and caches plan on the CPU.

Held without a GPU: see `another_device`. `test_cuda.py` and `make gpu` compute on a real one.
"""

import importlib

import pytest
import torch

from ropewalk import Tokens, reference_attention
from ropewalk.attention import CacheState, attend, cache_for
from ropewalk.attention.backends.choose import Choice
from ropewalk.attention.backends.dense import DENSE
from ropewalk.attention.paged import PagedBatch, PagedLayer
from ropewalk.attention.problem import layer_terms
from ropewalk.extension.inputs import PAD
from ropewalk.methods.positions import Sequential

from another_device import THERE, another_device, here, there
from attention.paged import server as paged
from attention.problems import every, learned, tensors
from examples import FACTS

LENGTH = 40
PADDED = torch.stack([torch.arange(LENGTH), torch.arange(LENGTH) - 7]).clamp(min=PAD)


@pytest.fixture(autouse=True)
def _on_the_other_device(monkeypatch):
    """Every problem by the backend that needs no kernel of the device."""
    dispatch = importlib.import_module("ropewalk.attention.dispatch")
    monkeypatch.setattr(dispatch, "choose", lambda problem: Choice(DENSE, "chosen by a test"))
    with another_device():
        yield


def moved(extension, facts=FACTS):
    return {name: {key: there(x) for key, x in group.items()} for name, group in learned(extension, facts).items()}


def assert_equal(one, extension, inputs, **placed):
    assert one.device == THERE
    other = reference_attention(*inputs, extension, FACTS, weights=learned(extension), **placed)
    torch.testing.assert_close(here(one), other, atol=1e-9, rtol=1e-9)


@pytest.mark.sampled(cases=4)
@every
@pytest.mark.parametrize("positions", [None, PADDED], ids=["", "padded"])
def test_a_whole_text(extension, positions):
    inputs = tensors(LENGTH, batch=2)
    tokens = Tokens(None if positions is None else there(positions))
    one = attend(*map(there, inputs), extension, FACTS, tokens, weights=moved(extension))
    assert_equal(one, extension, inputs, tokens=Tokens(positions))


@pytest.mark.sampled(cases=4)
@every
@pytest.mark.parametrize("begins", [None, [0, -7]], ids=["", "padded"])
def test_a_text_read_through_a_cache(extension, begins):
    """In a chunk and token by token, where rows may begin late."""
    if extension.positions_or_sequential != Sequential():
        pytest.skip("these positions are for training only")
    inputs = tensors(LENGTH, batch=2)
    cache = cache_for(CacheState(extension, FACTS, weights=moved(extension), begins=begins or [0, 0]))
    parts = zip(*(torch.split(there(x), [LENGTH // 2, 1, 1, LENGTH // 2 - 2], 2) for x in inputs), strict=True)
    one = torch.cat([cache.read(*part) for part in parts], 2)
    assert_equal(one, extension, inputs, tokens=Tokens(None if begins is None else PADDED))


class Server(paged.Server):
    """Pages, vectors and learned numbers on the other device."""

    def __init__(self, extension):
        super().__init__(extension, weights=learned(extension, paged.FACTS))
        self.pages = there(self.pages)
        self.layer = PagedLayer(layer_terms(extension, self.facts, moved(extension, self.facts)))

    def new(self, n, count):
        return [there(x) for x in super().new(n, count)]

    def step(self, counts):
        outputs = super().step(counts)
        assert all(x.device == THERE for x in outputs)
        return [here(x) for x in outputs]


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize(
    "text", [*paged.LINES, "biases.kerple_log", "biases.t5+rerope:window=8", "scales.head_scale", "ssmax"]
)
def test_pages(text, monkeypatch):
    def batch(starts, lengths, table, slots, *, size):
        return PagedBatch(starts, lengths, there(table), there(slots), size=size)

    monkeypatch.setattr(paged, "PagedBatch", batch)
    server = Server(paged.line(text))
    for length in (60, 30):
        server.add(length)
    for counts in ([50, 9], [1, 1], [3, 20]):
        server.check(counts)


def test_the_device_of_these_tests_refuses_what_a_gpu_refuses():
    """Else nothing above could fail."""
    on, off = there(torch.ones(3)), torch.ones(3)
    for mixed in (lambda: on + off, lambda: torch.cat([on, off]), lambda: off[on.long()]):
        with pytest.raises(RuntimeError, match="two devices"):
            mixed()
    assert (on * torch.tensor(2.0)).device == torch.zeros(2, device=THERE).device == THERE
    assert on[off.long() * 0].device == off.to(on.device).device == THERE
    assert on.cpu().device == torch.device("cpu")
