"""Attention over pages by an engine's kernel equals the oracle: the kernel is a stand-in with a layout of its own."""

from dataclasses import replace

import pytest
import torch

from ropewalk.attention.paged.kernel_layer import KernelLayer, windows_of
from ropewalk.attention.problem import layer_terms
from ropewalk.attention.rotation.rotate import Rotation, rotate

from attention.paged.server import FACTS, LINES, Server, line


class StandIn:
    """Plain attention of entries to their last keys, over pages whose tokens stand the other way round."""

    def __init__(self, facts, *, reach=1e3, sums_chunks=False):
        self.facts, self.reach, self.refused, self.sums_chunks = facts, reach, 0, sums_chunks

    def store(self, pages, lane, k, v, slots):
        size = pages.shape[3]
        for at, x in ((lane, k), (-1, v)):
            pages[:, :, at][slots // size, :, size - 1 - slots % size] = x.to(pages.dtype)

    def rotated(self, x, cos_sin):
        half = cos_sin.shape[-1] // 2
        return rotate(x, Rotation(cos_sin[:, None, :half], cos_sin[:, None, half:]), self.facts.interleaved)

    def queries(self, q, cos_sin, plan):
        return q if cos_sin is None else self.rotated(q, cos_sin)

    def plan(self, call, *, summed):
        return call

    def unpacked(self, lane, *, values):
        return lane.flip(2)

    def packed(self, lane):
        return lane.flip(2)

    def logits(self, pages, lane, q, call):
        for n, (first, end) in enumerate(zip(call.starts[:-1].tolist(), call.starts[1:].tolist(), strict=True)):
            page = call.table[n, : -(-int(call.stops[n]) // pages.shape[3])].long()
            k, v = (pages[page][:, :, at].flip(2).transpose(0, 1).flatten(1, 2) for at in (lane, -1))
            part = q[first:end].unflatten(1, (pages.shape[1], -1))
            logit = torch.einsum("tgkd,gjd->tgkj", part, k) / q.shape[-1] ** 0.5
            stop = int(call.stops[n]) - torch.arange(end - first).flip(0)
            j = torch.arange(k.shape[1])
            hidden = j >= stop[:, None]
            if call.window is not None:
                hidden |= j < stop[:, None] - call.window
            yield logit.masked_fill(hidden[:, None, None], -torch.inf), v

    def attend(self, pages, lane, q, call, sink):
        out = []
        for logit, v in self.logits(pages, lane, q, call):
            if sink is not None:
                ours = sink.to(logit).view(1, *logit.shape[1:3], 1).expand(*logit.shape[:3], 1)
                logit = torch.cat([logit, ours], -1)
            weight = logit.softmax(-1)[..., : v.shape[1]]
            out.append(torch.einsum("tgkj,gjd->tgkd", weight, v).flatten(1, 2))
        return torch.cat(out)

    def attend_summed(self, pages, calls):
        out, sums = [], []
        for lane, q, call in calls:
            out.append(self.attend(pages, lane, q, call, None))
            sums.append(torch.cat([x.logsumexp(-1).flatten(1) for x, _ in self.logits(pages, lane, q, call)]))
        if max(float(x.max()) for x in sums) > self.reach:
            self.refused += 1
            return None
        return torch.stack(out), torch.stack(sums)


class KernelServer(Server):
    """`Server` by such a kernel."""

    def __init__(self, extension, facts=FACTS, *, reach=1e3, sums_chunks=False, **options):
        super().__init__(extension, facts, **options)
        self.kernel = StandIn(facts, reach=reach, sums_chunks=sums_chunks)
        self.layer = KernelLayer(self.layer.terms, self.kernel)
        self.pages.zero_()  # as engines begin


SUPPORTED = [
    text for text in [*LINES, "long_reach", "rerope_by_parts"] if windows_of(layer_terms(line(text), FACTS)) is not None
]


def test_which_lines_a_kernel_computes():
    assert set(LINES) - set(SUPPORTED) == {
        "dual_chunk:chunk=16,local=4",
        "bca:block=12",
        "alibi",
        "rerope:window=8+alibi",
    }


@pytest.mark.sampled(cases=18)
@pytest.mark.parametrize("sums_chunks", [False, True])
@pytest.mark.parametrize("text", SUPPORTED)
def test_equals_the_oracle(text, sums_chunks):
    server = KernelServer(line(text), sums_chunks=sums_chunks)
    for length in (120, 90, 40):
        server.add(length)
    for counts in ([50, 9, 1], [1, 1, 1], [30, 3, 20], [8, 60, 1], [1, 1, 0], [1, 1, 9], [1, 1, 1]):
        server.check(counts)


@pytest.mark.parametrize("text", ["log_n", "yarn:factor=4+log_n", "rerope:window=8+log_n", "long_reach"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_that_rotate_in_part_equal_the_oracle(text, interleaved):
    server = KernelServer(line(text), replace(FACTS, rotary_dim=4, interleaved=interleaved))
    server.add(120)
    for count in (50, 1, 60, 9):
        server.check([count])


def test_sums_that_the_kernel_cannot_tell_are_computed_without_it():
    server = KernelServer(line("rerope:window=8"), reach=-1e3)
    server.add(60)
    for counts in ([40], [1], [3]):
        server.check(counts)
    assert server.kernel.refused == 2
