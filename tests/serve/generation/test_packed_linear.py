"""Packed linear layers compute what plain ones do, each row alike however many there are, and can be unpacked."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ropewalk.serve.generation.model import packed_linears

BF16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
AMX = torch.cpu._is_amx_tile_supported()  # whose tiles sum bfloat16 in an order that depends on the rows
DTYPES = [torch.float32, torch.bfloat16] if BF16 else [torch.float32]  # what this CPU packs

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


class Model(nn.Module):
    """A vocabulary that is shared by the output, a layer with a bias, one without."""

    def __init__(self, width=64, inner=96, words=50):
        super().__init__()
        self.words, self.up, self.down = nn.Embedding(words, width), nn.Linear(width, inner), nn.Linear(inner, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.down(torch.relu(self.up(self.words(ids)))))


class ReadsWeights(Model):
    """One that multiplies by a weight itself."""

    def forward(self, ids):
        return self.head(torch.relu(self.up(self.words(ids))) @ self.down.weight.T)


def packed(model):
    ids = torch.arange(8)
    return packed_linears(model, lambda: model(ids))


def test_the_same_answers_and_afterwards_the_same_weights():
    model, ids = Model().requires_grad_(False), torch.arange(30)
    plain, weights = model(ids), {name: value.clone() for name, value in model.state_dict().items()}
    undo = packed(model)
    assert model.up.weight.numel() == 0
    assert torch.equal(model.words.weight, weights["words.weight"])  # which the output shares
    torch.testing.assert_close(model(ids), plain, atol=1e-5, rtol=1e-5)
    undo.close()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(model(ids), plain)


def test_a_model_that_reads_weights_itself_is_left_as_it_is():
    model = ReadsWeights().requires_grad_(False)
    plain = model(torch.arange(9))
    packed(model)
    assert torch.equal(model(torch.arange(9)), plain)
    assert "forward" not in model.up.__dict__


def test_a_layer_that_was_changed_is_left_as_it_is():
    model = Model().requires_grad_(False)
    forward = model.up.forward
    model.up.forward = lambda x: 2 * forward(x)
    packed(model)
    assert model.up.weight.numel() > 0
    assert model.down.weight.numel() == 0


@pytest.mark.parametrize("packs", [0, 1])
def test_a_model_that_a_cpu_cannot_pack_is_left_as_it_is(packs, monkeypatch):
    """A CPU without AVX-512 has no kernel for bfloat16: the layer is refused, after `packs` that were not."""
    model = Model().requires_grad_(False)
    plain, weights = model(torch.arange(9)), {name: value.clone() for name, value in model.state_dict().items()}
    pack, calls = torch.ops.mkldnn._reorder_linear_weight, []

    def refuse(weight, rows):
        calls.append(rows)
        if len(calls) > packs:
            raise RuntimeError("mkldnn_reorder_linear_weight: bf16 path needs the cpu support avx512bw")
        return pack(weight, rows)

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", refuse)
    packed(model)
    assert len(calls) == packs + 1
    assert torch.equal(model(torch.arange(9)), plain)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(DTYPES),
    st.integers(1, 200),
    st.integers(1, 200),
    st.lists(st.integers(1, 90), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_row_is_rounded_alike_among_any_others(dtype, width, inner, counts, bias):
    layer = nn.Linear(width, inner, bias=bias, dtype=dtype).requires_grad_(False)
    x = torch.randn(sum(counts), width).to(dtype)
    with packed_linears(layer, lambda: layer(x)):
        parts = [layer(part) for part in x.split(counts)]
        for some, of_all in ((torch.cat(parts), layer(x)), (layer(x[:1]), layer(x)[:1])):
            if dtype is torch.bfloat16 and AMX:
                torch.testing.assert_close(some, of_all, rtol=2**-7, atol=2**-9)
            else:
                assert torch.equal(some, of_all)


THREADS = """
import os, torch
from ropewalk.serve.generation.engine import release_workers
torch.set_num_threads(4)
torch.rand(2000, 2000).add_(1)
before = len(os.listdir("/proc/self/task"))
release_workers()
print(before - len(os.listdir("/proc/self/task")))
"""


@pytest.mark.nightly
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts the threads of a process in /proc")
def test_workers_are_given_back():
    out = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True).stdout
    assert int(out) == 3
