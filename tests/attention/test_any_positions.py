"""Attention over any positions: numbers with gaps, packed documents, padding, some of the queries, under every reach.

Hypothesis draws the cases, the same ones in every run, and every way of computing has to give the oracle's answers and
gradients. For many more, and others each time: ROPEWALK_EXAMPLES=2000 pytest tests/attention/test_any_positions.py
"""

import dataclasses
import importlib
import itertools
import os
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from torch import Tensor

from ropewalk import Extension, Facts, Tokens, parse, reference_attention
from ropewalk.attention import CacheState, attend, cache_for
from ropewalk.attention.backends import (
    bias_diagonals,
    bias_diagonals as diagonal_gradients,
    bias_pruning,
    dense,
    flash,
    flex,
)
from ropewalk.attention.backends.bias_diagonals import BIAS_DIAGONALS
from ropewalk.attention.backends.choose import Choice
from ropewalk.attention.layout.segments import tiles_of
from ropewalk.attention.torch_kernels import fused, softmax as matmul
from ropewalk.extension.inputs import PAD
from ropewalk.methods import biases, frequencies, reach, scales
from ropewalk.methods.positions import Randomized
from ropewalk.methods.positions.pose import skip_numbers

from attention.backends.flex_by_definition import defined
from attention.layout.painting import painted, wanted
from attention.problems import CLOSE, learned
from nightly import first_of_each

dispatch = importlib.import_module("ropewalk.attention.dispatch")
EXAMPLES = int(os.environ.get("ROPEWALK_EXAMPLES", "0"))
TRAINED = 32
SEEDS = st.integers(0, 2**31)


def drawn(examples):
    """The number of cases. If the environment variable sets it, every run draws other cases."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# What a case is made of.

SCHEDULES = (
    None,
    frequencies.ByParts(factor=4),
    frequencies.NoPE(),
    frequencies.Partial(share=0.5),
    frequencies.XPos(),
    frequencies.Dynamic(inner=frequencies.ByParts(factor=1)),
    frequencies.Dynamic(inner=frequencies.NTK(factor=1), steps=1),
    frequencies.Dynamic(inner=frequencies.NTK(factor=1), steps=None),
)
LINES = (
    biases.ALiBi(),
    biases.KerpleLog(),
    biases.KerplePower(),
    biases.Sandwich(),
    biases.GAURotary(width=8),
    biases.T5(),
    biases.BAM(centred=False),
)
SCALES = (
    scales.LogN(),
    scales.Temperature(value=1.3),
    scales.Llama4Temperature(beta=0.5),
    scales.HeadScale(),
    scales.DynamicTemperature(inner=scales.YarnTemperature(factor=1)),
    scales.DynamicTemperature(inner=scales.YarnTemperature(factor=1), steps=None),
)
KINDS = ("in order", "equal chunks", "chunks", "pose", "random", "even")
PRECISIONS = (torch.float64, torch.float64, torch.float32, torch.bfloat16)


@st.composite
def reaches(draw):
    """Every kind, or none, of any size that the trained length allows."""
    window, few = draw(st.integers(1, TRAINED - 8)), draw(st.integers(1, 7))
    chunk = draw(st.integers(2, TRAINED - 1))
    kinds = (
        None,
        reach.Causal(),
        reach.Window(window=window),
        reach.Blockwise(block=2 * draw(st.integers(1, 12))),
        reach.Sinks(window=window, n_sink=few),
        reach.LambdaMask(window=window, n_sink=few, ceiling=draw(st.none() | st.integers(1, TRAINED))),
        reach.ReRoPE(window=window),
        reach.LeakyReRoPE(window=window, leak=draw(st.sampled_from([1.0, 3.0, 4.5]))),
        reach.SelfExtend(window=window, group=few),
        reach.DualChunk(chunk=chunk, local=draw(st.integers(1, chunk - 1))),
        reach.String(shift=chunk, local=draw(st.integers(1, chunk - 1))),
        reach.SELF(window=window, capacity=few + 2, rate=draw(st.sampled_from([0.1, 0.7, 3.0]))),
        reach.LaMPE(head=few, tail=few, length=2 * TRAINED, mapped=draw(st.integers(TRAINED // 4, TRAINED // 2))),
    )
    return draw(st.sampled_from(kinds))


@st.composite
def numbers(draw, length, kinds=KINDS):
    """Ascending numbers for `length` tokens: from any start, in equal or unequal chunks, by PoSE, at random."""
    i, begin, gap = torch.arange(length), draw(st.integers(0, 3 * TRAINED)), draw(st.integers(0, 100))
    kind = draw(st.sampled_from(kinds))
    if kind == "equal chunks":
        return begin + i + i // draw(st.integers(1, max(1, length))) * gap
    if kind == "chunks":
        edges = draw(st.lists(st.tuples(st.integers(0, length), st.integers(1, 60)), max_size=4))
        return begin + i + sum((i >= edge) * width for edge, width in edges)
    if kind == "pose":
        return skip_numbers(length, draw(st.integers(1, (length + 1) // 2)), gap * 8)
    if kind == "random":
        return Randomized(limit=4 * length).number(length, torch.Generator().manual_seed(draw(SEEDS)))
    return Randomized(limit=3 * length + gap).number(length) if kind == "even" else begin + i


class Batch(NamedTuple):
    """The numbers and the documents of a batch, and how many of its last tokens are queries."""

    positions: Tensor
    documents: Tensor
    queries: int


@st.composite
def batches(draw, longest, kinds=KINDS):
    """Rows of one length."""
    length = draw(st.integers(1, longest))
    rows = [draw(numbered(length, kinds)) for _ in range(draw(st.integers(1, 2)))]
    queries = length if draw(st.booleans()) else draw(st.integers(1, length))
    return Batch(*(torch.stack(column) for column in zip(*rows, strict=True)), queries)


@st.composite
def numbered(draw, length, kinds):
    """A row: padding on the left, documents, padding on the right."""
    left, right = (draw(st.integers(0, length // 3)) if draw(st.booleans()) else 0 for _ in range(2))
    real = length - left - right
    cuts = draw(st.sets(st.integers(1, real - 1), max_size=3)) if real > 1 else ()
    sizes = [stop - first for first, stop in itertools.pairwise([0, *sorted(cuts), real])]
    positions = [torch.full((left,), PAD), *(draw(numbers(size, kinds)) for size in sizes), torch.full((right,), PAD)]
    documents = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return torch.cat(positions), torch.cat([documents[:1].repeat(left), documents, documents[-1:].repeat(right)])


@st.composite
def models(draw):
    """Grouped heads, layouts of pairs, a cap, sinks, factors of rotated queries."""
    heads, kv_heads = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2)]))
    interleaved, rotary_dim = draw(st.sampled_from([(False, None), (True, None), (False, 6)]))
    return Facts(
        trained_len=TRAINED,
        head_dim=8,
        heads=heads,
        kv_heads=kv_heads,
        interleaved=interleaved,
        rotary_dim=rotary_dim,
        softcap=draw(st.sampled_from([None, None, 1.5])),
        sinks=draw(st.booleans()),
        weighted=draw(st.booleans()),
    )


def some(specs, fewest=0):
    """One or two of them, or none."""
    return st.lists(st.sampled_from(specs), min_size=fewest, max_size=2, unique_by=lambda spec: spec.name).map(tuple)


class Case(NamedTuple):
    """The arguments of `attend`."""

    extension: Extension
    facts: Facts
    batch: Batch
    dtype: torch.dtype
    seed: int


@st.composite
def cases(draw, *, longest=70, dtypes=PRECISIONS, **fixed):
    """Any case, apart from fixed parts: strategies for slots of the extension, numbers for the model."""
    parts = {
        "frequencies": st.sampled_from(SCHEDULES),
        "reach": reaches(),
        "biases": some(LINES) | st.just((biases.FIRE(),)),
        "scales": some(SCALES),
    }
    kinds = fixed.pop("kinds", KINDS)
    extension = Extension(**{name: draw(fixed.pop(name, part)) for name, part in parts.items()})
    facts = dataclasses.replace(draw(models()), **fixed)
    return Case(extension, facts, draw(batches(longest, kinds)), draw(st.sampled_from(dtypes)), draw(SEEDS))


def answered(way, case):
    """The output, the gradients of vectors and, in every second case, of learned numbers. In half precision these
    have the rounding of all rows, and are left out."""
    (extension, facts, batch, dtype, seed), rng = case, torch.Generator().manual_seed(case.seed)
    counts = [(facts.heads, batch.queries), *[(facts.groups, batch.positions.shape[1])] * 2]
    sizes = [(len(batch.positions), heads, count, facts.head_dim) for heads, count in counts]
    leaves = [torch.randn(size, generator=rng).to(dtype).requires_grad_() for size in sizes]
    weights = numbers_learned(extension, facts)
    if seed % 2 and dtype != torch.bfloat16:
        leaves += [value.requires_grad_() for group in weights.values() for value in group.values()]
    answer = way(*leaves[:3], extension, facts, Tokens(batch.positions, batch.documents), weights=weights)
    slope = torch.randn(answer.shape, generator=rng, dtype=torch.float64)
    if not answer.requires_grad:  # no query is one
        return [answer, *map(torch.zeros_like, leaves)]
    return [answer.detach(), *torch.autograd.grad(answer, leaves, slope.to(answer.dtype))]


def numbers_learned(extension, facts):
    """In float64, so that their gradients are compared in it."""
    initial = learned(extension, facts)
    return {name: {key: value.double() for key, value in group.items()} for name, group in initial.items()}


def assert_right(case):
    """The output and gradients of `attend` are the oracle's."""
    for one, other in zip(answered(attend, case), answered(reference_attention, case), strict=True):
        assert_close(one, other, case.dtype)


def assert_close(one, other, dtype):
    """Relative to the largest number."""
    assert one.shape == other.shape
    if one.numel():
        error = float((one.double() - other.double()).abs().max())
        assert error <= CLOSE[dtype] * max(1.0, float(other.abs().max())), error


# Every backend.


@pytest.fixture
def small(monkeypatch):
    """Blocks, tiles and limits so small that short texts take every branch."""
    sizes = {
        flash: {"FORWARD_ROWS": 8, "BACKWARD_ROWS": dict.fromkeys(CLOSE, 6), "KEYS_AT_ONCE": 40, "TOKENS_AT_ONCE": 100},
        dense: {"DENSE_BLOCK": 16},
        matmul: {"QUERIES_PER_MATMUL": 16},
        bias_diagonals: {"ROWS_PER_BLOCK": 16},
        diagonal_gradients: {"KEYS_PER_BLOCK": 16, "LOGITS_PER_BLOCK": 700},
        bias_pruning: {"FEWEST_PAIRS": 0, "FEWEST_QUERIES": 1, "NORM_TOKENS": 8},
        dispatch: {"MOST_TABLES": 3},
    }
    for module, values in sizes.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)


def go_by(patch, backend, carries):
    """Every problem that the backend carries is computed by it; the list holds these problems."""
    original, taken = dispatch.choose, []

    def choice(problem):
        if original(problem).double or not carries(problem):
            return original(problem)
        taken.append(problem)
        return Choice(backend, "chosen by a test")

    patch.setattr(dispatch, "choose", choice)
    return taken


def assert_right_by(backend, carries, case):
    """Attention by this backend; every case must have a problem for it, unless all queries are padding."""
    with pytest.MonkeyPatch.context() as patch:
        taken = go_by(patch, backend, carries)
        assert_right(case)
    assert taken or not (case.batch.positions[:, -case.batch.queries :] != PAD).any()


@drawn(40)
@given(case=cases(scales=st.just((scales.SSMax(),)), dtypes=(torch.float64,)))
def test_a_learned_number_that_is_far_below_its_scale(small, case):
    """SSMax's s is multiplied by ln n, and so is the rounding of its slope, a sum over all rows: in float64."""
    assert_right(case)


@pytest.mark.nightly
@drawn(150)
@given(case=cases())
def test_as_the_chooser_has_it(small, case):
    assert_right(case)


@pytest.fixture(params=first_of_each(["fused kernels", "matmul", "matmul with windows"]))
def tiles(request, small, monkeypatch):
    """What computes a tile: torch's kernels, or a matmul where there are none or where a band is one call."""
    if request.param != "fused kernels":
        monkeypatch.setattr(fused, "_entry", lambda like, tile_mask: None)
    if request.param == "matmul with windows":
        monkeypatch.setattr(fused, "has_window_kernel", lambda like: True)


@pytest.mark.nightly
@drawn(120)  # many reaches, of which few have bands of several blocks
@given(case=cases(biases=st.just(()), softcap=None))
def test_by_tiles_however_scattered(tiles, case):
    assert_right_by(flash.FLASH, lambda problem: True, case)


@drawn(60)
@given(case=cases())
def test_by_matmul_in_blocks_of_rows(small, case):
    assert_right_by(dense.DENSE, lambda problem: True, case)


WINDOWS = st.integers(1, TRAINED).map(lambda window: reach.Window(window=window))


@drawn(60)
@given(case=cases(biases=some(LINES, fewest=1), reach=st.none() | WINDOWS, kinds=("in order",), softcap=None))
def test_by_a_line_of_numbers(small, case):
    assert_right_by(BIAS_DIAGONALS, lambda problem: BIAS_DIAGONALS.why_not(problem) is None, case)


def on_cuda(problem):
    """As if there were a GPU and heads were as large as there."""
    return problem._replace(device=torch.device("cuda"), dtype=torch.float32, head_dim=16, value_dim=16, learning=False)


@drawn(30)
@given(case=cases(biases=some(LINES), longest=100))
def test_by_flex_as_it_is_defined(monkeypatch, case):
    monkeypatch.setattr(flex, "flex_attention", defined)
    monkeypatch.setattr(flex, "compile_call", lambda: flex.call)
    with pytest.MonkeyPatch.context() as patch:
        go_by(patch, flex.FLEX, lambda problem: flex.why_not(on_cuda(problem)) is None)
        assert_right(case)


# Decoding.


@st.composite
def readings(draw):
    """A text that begins anywhere in every row, read in chunks, with the last tokens of some chunks removed."""
    begins = draw(st.lists(st.integers(-20, 40), min_size=1, max_size=3))
    pieces = draw(st.lists(st.tuples(st.sampled_from([1, 1, 1, 2, 9, 30]), st.integers(0, 3)), min_size=1, max_size=12))
    return begins, pieces, draw(st.permutations(range(len(begins))))


@pytest.mark.nightly
@drawn(100)
@given(case=cases(longest=1), reading=readings())
def test_read_through_a_cache(small, case, reading):
    """For any chunks, removed tokens and order of rows, the output is that of the whole text."""
    (begins, pieces, order), (extension, facts, _, dtype, seed) = reading, case
    rng, weights = torch.Generator().manual_seed(seed), numbers_learned(extension, facts)
    cache = cache_for(CacheState(extension, facts, begins=begins, weights=weights, spare=3))
    heads, answers = (facts.heads, facts.groups, facts.groups), []
    text = [torch.zeros(len(begins), n, 0, facts.head_dim, dtype=dtype) for n in heads]
    for size, back in pieces:
        new = [torch.randn(len(begins), n, size, facts.head_dim, generator=rng).to(dtype) for n in heads]
        answers.append(cache.read(*new)[:, :, : max(0, size - back)])
        cache.forget(min(size, back))
        text = [torch.cat([old, x[:, :, : max(0, size - back)]], 2) for old, x in zip(text, new, strict=True)]
        cache.select(order)
        begins, answers = [begins[row] for row in order], [answer[list(order)] for answer in answers]
        text = [x[list(order)] for x in text]
    numbers_bj = (torch.arange(text[0].shape[2]) + torch.tensor(begins)[:, None]).clamp(min=PAD)
    expected = reference_attention(*text, extension, facts, Tokens(numbers_bj), weights=weights)
    assert_close(torch.cat(answers, 2), expected, dtype)


# What it all rests on.


@drawn(150)
@given(drawn_reach=reaches(), row=st.integers(1, 60).flatmap(numbers), before=st.integers(0, 40))
def test_tiles_cover_every_span_once(drawn_reach, row, before):
    query_numbers = row[min(before, len(row) - 1) :]
    for span in (drawn_reach or reach.Causal()).spans():
        start, stop = (torch.searchsorted(row, bound) for bound in span.bounds(query_numbers))
        tiles = tiles_of(start, stop)
        assert torch.equal(painted(tiles, len(query_numbers), len(row)), wanted(start, stop, len(row)))
        assert sum(tile.pairs for tile in tiles) == int((stop - start).sum())


STEPS = st.lists(st.tuples(*[st.sampled_from([0, 0, 1, 1, 1, 7])] * 2), min_size=1, max_size=60)


@drawn(150)
@given(steps=STEPS, wide=st.integers(0, 30))
def test_tiles_cover_whatever_rises(steps, wide):
    """Bounds that stay, rise with the rows or jump, with rows that see nothing between."""
    start, stop = torch.tensor(steps).cumsum(0).T
    stop = (stop + wide - 10).maximum(start)
    keys = int(stop.max())
    assert torch.equal(painted(tiles_of(start, stop), len(start), keys), wanted(start, stop, keys))


# At the sizes that blocks and tiles really have.

LONG = Facts(trained_len=512, head_dim=8, heads=2)
GAPS = {
    "two chunks": skip_numbers(1100, 550, 4000),
    "equal chunks": torch.arange(1100) + torch.arange(1100) // 275 * 900,
    "chunks": torch.arange(1100) + (torch.arange(1100) >= 300) * 100 + (torch.arange(1100) >= 1000) * 3000,
    "even": Randomized(limit=2500).number(1100),
}
OVER_GAPS = [
    "window:window=200",
    "rerope:window=200",
    "streaming:window=150",
    "self_extend:window=150,group=4",
    "dual_chunk:chunk=400,local=100",
    "string:shift=200,local=50",
    "bca:block=300",
    "dynamic_yarn+rerope:window=300",
    "biases.alibi",
    "biases.t5+window:window=200",
]


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("text", OVER_GAPS)
def test_long_texts_with_gaps(text, name):
    batch = Batch(GAPS[name][None], torch.zeros(1, 1100, dtype=torch.int64), 1100)
    assert_right(Case(parse(text), LONG, batch, torch.float32, 0))
