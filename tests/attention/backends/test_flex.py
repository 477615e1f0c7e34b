"""FlexAttention without a GPU: by its definition, as torch traces it, and compiled for the CPU."""

import importlib
from dataclasses import replace
from functools import cache
from inspect import signature
from shutil import which

import pytest
import torch
from torch.nn.attention import flex_attention as torchs
from torch.nn.functional import pad

from ropewalk import DoesNotFit, Extension, Facts, Tokens, parse, reference_attention
from ropewalk.attention import attend
from ropewalk.attention.backends import flex
from ropewalk.attention.backends.choose import Choice
from ropewalk.attention.layout.block_lists import block_lists
from ropewalk.attention.layout.segments import SpanKeys, segments_of
from ropewalk.attention.rotation.rotate import rotated_copies
from ropewalk.methods.reach.reach import Reach, Span

from attention.backends.flex_by_definition import defined
from attention.problems import EVERY, assert_equal, learned, tensors
from examples import BIASES, FACTS, REACH

dispatch = importlib.import_module("ropewalk.attention.dispatch")
ALONE = [spec for spec in BIASES if spec.of_distance_alone]
CARRIED = [extension for extension in EVERY if all(spec.of_distance_alone for spec in extension.biases)]
name = lambda extension: "+".join(str(spec) for group in extension.specs.values() for spec in group)  # noqa: E731
LONG = Facts(trained_len=160, head_dim=16, heads=4, kv_heads=2)


@pytest.fixture
def by_flex(monkeypatch):
    """Every problem is computed by flex, whose kernel is replaced by its definition."""
    monkeypatch.setattr(dispatch, "choose", lambda problem: Choice(flex.FLEX, "chosen by a test"))
    monkeypatch.setattr(flex, "flex_attention", defined)
    monkeypatch.setattr(flex, "compile_call", lambda: flex.call)


def text_of(extension, length, facts=FACTS):
    """The segments of a whole sequence."""
    numbers = torch.arange(length)
    return segments_of(extension, facts, numbers, [numbers] * len(extension.reach_or_causal.spans()))


def computed(segments, tensors, bias_at=None):
    """Without `attend` and `choose`."""
    q, k, v = tensors
    keys = [SpanKeys(k, v, torch.arange(k.shape[2]))] * 2
    return flex.flex(rotated_copies(q, keys, segments, interleaved=False), segments, bias_at)


@pytest.mark.parametrize("extension", CARRIED, ids=name)
def test_equals_the_oracle(by_flex, extension):
    assert_equal(extension, tensors(63, batch=2))


@pytest.mark.sampled
@pytest.mark.parametrize("extension", CARRIED, ids=name)
@pytest.mark.parametrize("brought", [{"softcap": 1.5}, {"sinks": True}, {"softcap": 1.5, "sinks": True}], ids=str)
def test_a_cap_and_sinks(by_flex, extension, brought):
    assert_equal(extension, tensors(63), replace(FACTS, **brought))
    if "sinks" in brought and extension.biases:
        assert_learns(extension, replace(FACTS, **brought), length=31)


def assert_learns(extension, facts=FACTS, length=63, dtype=torch.float64):
    slopes = []
    for way in (attend, reference_attention):
        weights = learned(extension, facts)
        leaves = [value.requires_grad_() for group in weights.values() for value in group.values()]
        leaves += [x.requires_grad_() for x in tensors(length, facts, batch=2, dtype=dtype)]
        way(*leaves[-3:], extension, facts, weights=weights).double().square().sum().backward()
        slopes.append([leaf.grad.double() for leaf in leaves])
    close = {torch.float64: 1e-9, torch.bfloat16: 5e-2}[dtype]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=close * max(1, float(other.abs().max())))


@pytest.mark.sampled
@pytest.mark.parametrize("bias", ALONE, ids=str)
@pytest.mark.parametrize("reach", REACH, ids=str)
def test_every_bias_learns_under_every_reach(by_flex, reach, bias):
    assert_learns(Extension(reach=reach, biases=(bias,)), length=31)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text", ["rerope:window=140", "biases.t5+streaming:window=150", "dynamic_yarn", "bca:block=150"]
)
@pytest.mark.parametrize("queries", [1, 140])
def test_texts_of_many_blocks_with_fewer_queries_than_keys(by_flex, text, queries):
    assert_equal(parse(text), tensors(270, LONG, queries=queries), LONG)


def test_padded_rows_half_precision_and_values_of_another_size(by_flex):
    q, k, v = tensors(63, batch=2, dtype=torch.bfloat16)
    positions = torch.arange(63).repeat(2, 1)
    positions[1] = torch.cat([torch.full((20,), -1), torch.arange(43)])
    for x in (q, k, v):
        x.movedim(2, 1)[positions == -1] = 0.0
    wide = torch.cat([v, v], -1)
    assert_equal(parse("biases.alibi+rerope:window=9"), [q, k, wide], tokens=Tokens(positions))


class Blind(Reach):
    """The first rows see nothing, and some of the others see keys by one span only."""

    name = "blind"

    def spans(self):
        return (
            Span(start=lambda i: i - 20, stop=lambda i: i - 9, q_at=lambda i: i, k_at=lambda j: j),
            Span(start=lambda i: i * 0, stop=lambda i: i - 39, q_at=lambda i: i * 0 + 30, k_at=lambda j: j * 0),
        )


def test_rows_that_see_nothing_give_zeros(by_flex):
    for facts in (FACTS, replace(FACTS, sinks=True)):
        assert_equal(Extension(reach=Blind()), tensors(63, batch=2), facts)
    near, rows = text_of(Extension(reach=Blind()), 63)[0], slice(20, 60)  # as if the others were of no segment
    near = near._replace(rows=rows, start=near.start[rows], stop=near.stop[rows], q_at=near.q_at[rows])
    answer = computed([near], tensors(63))
    assert answer.any(-1).all(1).nonzero()[:, 1].tolist() == list(range(20, 60))


@cache
def traced():
    """The graph that the compiler gets, with its backward pass, which torch's CPU kernels do not have."""
    return torch.compile(flex.require_compiling, backend="aot_eager", dynamic=True, fullgraph=True)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # from within torch's tracing
def test_torchs_own_graph_equals_the_oracle(by_flex, monkeypatch):
    """One segment and two, with and without a bias, learned numbers, half precision."""
    monkeypatch.setattr(flex, "flex_attention", torchs.flex_attention)
    monkeypatch.setattr(torchs, "_validate_device", lambda *arguments: None)
    monkeypatch.setattr(flex, "compile_call", traced)
    assert_equal(parse("rerope:window=9"), tensors(63, batch=2))
    assert_learns(parse("biases.t5+rerope:window=9"))
    for softcap in (1.5, 3.0):  # one graph for both
        assert_learns(parse("biases.t5+rerope:window=9"), replace(FACTS, softcap=softcap, sinks=True))
    assert_learns(parse("biases.t5"), LONG, length=140, dtype=torch.bfloat16)
    assert_equal(parse("rerope:window=9"), tensors(140, batch=2))  # the graph of 63 serves this one too


def test_a_bias_without_a_line_is_refused(by_flex):
    """`choose` sends none here; if it did, the bias would not be dropped silently."""
    numbers = torch.arange(20) * 1000
    segments = segments_of(Extension(), FACTS, numbers, [numbers])
    with pytest.raises(DoesNotFit, match="the effective distances of a bias must be evenly spaced on a short line"):
        computed(segments, tensors(20), lambda far: -far[None].double())


def test_nothing_is_ever_computed_uncompiled(monkeypatch):
    """Uncompiled, FlexAttention stores all pairs: a call that torch does not compile is an error."""
    monkeypatch.setattr(flex, "compile_call", lambda: flex.require_compiling)
    with pytest.raises(DoesNotFit, match="FlexAttention must be compiled"):
        computed(text_of(Extension(), 63), tensors(63))


def compiling(monkeypatch, **otherwise):
    """torch compiles again, with other settings."""
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **named: original(function, **{**named, **otherwise}))
    monkeypatch.setattr(flex, "compile_call", cache(flex.compile_call.__wrapped__))


@pytest.mark.nightly
@pytest.mark.skipif(
    "recompile_limit" not in signature(torch.compile).parameters, reason="this torch has one limit for all functions"
)
def test_the_limit_of_recompilations_is_an_error(monkeypatch):
    """torch itself would silently run the uncompiled form."""
    monkeypatch.setattr(flex, "KINDS", 1)
    compiling(monkeypatch, backend="eager")
    segments = text_of(Extension(), 63)
    computed(segments, tensors(63, dtype=torch.float32))
    with pytest.raises(DoesNotFit, match="1 kinds of calls already"):
        computed(segments, tensors(63, dtype=torch.float64))


def as_wide_as_the_keys(start, stop, keys):
    """The lists of blocks as torch's C++ kernel needs them: as wide as all the keys."""
    lists = block_lists(start, stop, keys)
    wide = [pad(indices, (0, 8 - indices.shape[-1])) for indices in (lists.kv_indices, lists.full_kv_indices)]
    return lists._replace(kv_indices=wide[0], full_kv_indices=wide[1])


@pytest.mark.nightly
@pytest.mark.skipif(which("g++") is None, reason="there is no g++ to compile with")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_call_compiled_to_the_end(monkeypatch):
    """By torch's C++ kernel, which has neither gradients nor a log-sum-exp: one span, forward."""
    monkeypatch.setattr(flex, "block_lists", as_wide_as_the_keys)
    compiling(monkeypatch, dynamic=False)  # the C++ backend mistakes one size for another where they are many
    extension, facts = parse("biases.alibi+window:window=70"), Facts(trained_len=32, head_dim=16, heads=2, kv_heads=1)
    inputs, slope = tensors(300, facts, dtype=torch.float32), torch.tensor([2.0**-4, 2.0**-8])
    with torch.no_grad():
        got = computed(text_of(extension, 300, facts), inputs, lambda far: -far * slope[:, None])
    expected = reference_attention(*inputs, extension, facts)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=2e-5)


@pytest.mark.nightly
@pytest.mark.skipif(which("g++") is None, reason="there is no g++ to compile with")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_capped_call_compiled_to_the_end(monkeypatch):
    monkeypatch.setattr(flex, "block_lists", as_wide_as_the_keys)
    compiling(monkeypatch, dynamic=False)
    facts = Facts(trained_len=32, head_dim=16, heads=2, kv_heads=1, softcap=1.5)
    inputs, segments = tensors(300, facts, dtype=torch.float32), text_of(Extension(), 300, facts)
    q, k, v = inputs
    with torch.no_grad():
        turned = rotated_copies(q, [SpanKeys(k, v, torch.arange(300))], segments, interleaved=False)
        got = flex.flex(turned, segments, None, facts.softcap)
    expected = reference_attention(*inputs, Extension(), facts)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=2e-5)
