"""A long text in pieces: the losses of one pass, a cache that does not grow, a corpus that begins again."""

import math
import time

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk import extended
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.measure.metrics.streaming import HeldOutText, long_text, read_stream
from ropewalk.texts.corpora import documents

from hf.traces import logits
from measure.subjects import model
from train.texts import folder_of, tokenizer

LINES = ["streaming:window=12,n_sink=4", "window:window=16", "rerope:window=8", ""]
IDS = torch.randint(3, 297, (300,), generator=torch.Generator().manual_seed(1))


def of(ids, **given):
    return read_stream(model(), tokenizer(), HeldOutText(ids, 1, 1.0), **given)


@pytest.mark.parametrize("line", LINES)
def test_pieces_are_one_pass(line):
    with extended(model(), line or "rope"):
        whole = logits(model(), IDS[None], use_cache=False)[0, :-1]
        got = of(IDS, piece=37)
    losses = cross_entropy(whole, IDS[1:], reduction="none")
    assert got.loss == pytest.approx(float(losses.mean()), abs=1e-5)
    assert got.accuracy == pytest.approx(float((whole.argmax(-1) == IDS[1:]).float().mean()))
    told = len(tokenizer().decode(IDS[1:]).encode())
    assert got.bits_per_byte == pytest.approx(float(losses.sum()) / math.log(2) / told, rel=1e-5)
    first = 1
    for each in got.stretches:
        assert each.loss == pytest.approx(float(losses[first - 1 : each.stop - 1].mean()), abs=1e-5)
        first = each.stop
    assert [each.stop for each in got.stretches] == [38, 75, 112, 149, 186, 223, 260, 297, 300]


def test_memory_is_that_of_the_reach():
    with extended(model(), LINES[0]):
        short, long = of(IDS[:80], piece=20), of(IDS, piece=20)
    assert short.cache_bytes == long.cache_bytes == 2 * 2 * 2 * 16 * (12 + 4) * 4  # layers, heads, both, dimensions
    assert {each.cache_bytes for each in long.stretches} == {long.cache_bytes}
    bare = of(IDS, piece=20)
    assert bare.stretches[-1].cache_bytes > 10 * bare.stretches[0].cache_bytes
    assert long.process_bytes > 2**26  # the interpreter with torch


def test_stretches_are_a_few_and_whole():
    got = of(IDS, piece=2)
    assert len(got.stretches) == 64
    assert got.stretches[-1].stop == 300
    sizes = [b.stop - a.stop for a, b in zip(got.stretches, got.stretches[1:], strict=False)]
    assert {*sizes[:-1]} <= {4, 6}
    weighed = sum(
        each.loss * size for each, size in zip(got.stretches, [got.stretches[0].stop - 1, *sizes], strict=True)
    )
    assert weighed / 299 == pytest.approx(got.loss)


def test_progress_and_time_are_reported():
    told, began, worked = [], time.perf_counter(), time.process_time()
    read = of(IDS, piece=128, progress=lambda *each: told.append(each))
    assert told == [(128, 300), (256, 300), (300, 300)]
    assert 0 < read.seconds <= time.perf_counter() - began
    assert 0 < read.processor_seconds <= time.process_time() - worked


def test_a_text_is_held_out_documents_and_begins_again(tmp_path):
    corpus = folder_of(tmp_path / "texts", count=60)
    held = [torch.tensor(tokenizer().encode(each.text)) for each in documents(corpus, "held out")]
    whole = torch.cat(held)
    some = long_text(tokenizer(), corpus, len(held[0]) + 3)
    assert torch.equal(some.ids, whole[: len(held[0]) + 3])
    assert some.documents == 2
    assert some.rounds < 1
    more = long_text(tokenizer(), corpus, 2 * len(whole) + 5)
    assert torch.equal(more.ids, torch.cat([whole, whole, whole[:5]]))
    assert more.rounds == pytest.approx((2 * len(whole) + 5) / len(whole))
    assert more.documents == len(held)


def test_bad_input(tmp_path):
    with pytest.raises(InvalidValue, match="tokens must be at least 2, got 1"):
        long_text(tokenizer(), "stdlib", 1)
    with pytest.raises(InvalidValue, match="corpus must be one of"):
        long_text(tokenizer(), "nowhere", 10)
    with pytest.raises(DoesNotFit, match="corpus"):
        long_text(tokenizer(), folder_of(tmp_path / "few", count=0), 10)
    with pytest.raises(InvalidValue, match="piece"):
        of(IDS, piece=0)
