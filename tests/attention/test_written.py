"""Tokens that a model reads beside tokens that it writes, under a reach that tells them apart: the definition by hand,
and every fast path against it."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from ropewalk import DoesNotFit, Extension, Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import CacheState, attend, cache_for, explain
from ropewalk.equation import reference_weights
from ropewalk.extension.inputs import PAD
from ropewalk.methods.reach import Causal, ReadingWindow

from attention.agreement import require_agreement
from attention.problems import CLOSE, learned, tensors
from examples import FACTS

SWAA = parse("reading_window:window=6,n_sink=2")
EXTENSIONS = {
    "plain": SWAA,
    "dynamic": parse("dynamic_yarn+reading_window:window=6,n_sink=2+log_n"),
    "biased": parse("biases.alibi+reading_window:window=5,n_sink=0"),
    "learned": parse("biases.kerple_log+scales.head_scale+reading_window:window=5,n_sink=1"),
    "decaying": parse("xpos+reading_window:window=6,n_sink=2"),
    "in one head": replace(parse("rope"), heads={1: SWAA}),
    "but in one head": replace(SWAA, heads={0: Extension(reach=Causal())}),
}


def test_the_definition_by_hand():
    """Without rotation and with equal keys, each visible key has the same weight. Tokens 3 and 5 are written."""
    facts = Facts(trained_len=8, head_dim=2, heads=1, rotary_dim=2)
    q, k = torch.ones(1, 1, 6, 2), torch.zeros(1, 1, 6, 2)
    written = torch.tensor([[False, False, False, True, False, True]])
    extension = parse("nope+reading_window:window=2,n_sink=1")
    got = reference_weights(q, k, extension, facts, Tokens(written_bj=written))
    third, sixth = 1 / 3, 1 / 6
    expected = [
        *([1, 0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0, 0], [third, third, third, 0, 0, 0]),
        [0.25, 0.25, 0.25, 0.25, 0, 0],
        [third, 0, 0, third, third, 0],
        [sixth] * 6,
    ]
    torch.testing.assert_close(got[0, 0], torch.tensor(expected, dtype=torch.float64))
    read = reference_weights(q, k, extension, facts)[0, 0]
    assert read[5].tolist() == pytest.approx([third, 0, 0, 0, third, third])


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(sorted(EXTENSIONS)),
    keys=st.integers(1, 60),
    share=st.floats(0.05, 1),
    prompts=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    turns=st.booleans(),
    packed=st.booleans(),
    padding=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_the_fast_paths_equal_the_definition(name, keys, share, prompts, turns, packed, padding, seed):
    """Prompts of each row's own length, or turns in any order; padded, or packed documents."""
    written = torch.arange(keys) >= torch.tensor(prompts)[:, None]
    if turns:
        written ^= torch.rand(2, keys, generator=torch.Generator().manual_seed(seed)) < 0.3
    positions = torch.stack([torch.arange(keys), (torch.arange(keys) - padding).clamp(min=PAD)])
    tokens = Tokens(positions, written_bj=written)
    if packed:
        half = keys // 2
        documents = (torch.arange(keys) >= half).long().expand(2, -1)
        tokens = Tokens((torch.arange(keys) - half * documents[0]).expand(2, -1), documents, written_bj=written)
    x = tensors(keys, batch=2, queries=max(1, round(share * keys)), seed=seed, dtype=torch.float32)
    inputs = [part.requires_grad_() for part in x]
    extension = EXTENSIONS[name]
    require_agreement(inputs, extension, FACTS, seed, tokens=tokens, weights=learned(extension))


@pytest.mark.sampled(cases=18)
@pytest.mark.parametrize("cuts", [[23, *[1] * 37], [10, 13, 30, 7], [1] * 60, [60]], ids=str)
@pytest.mark.parametrize("name", EXTENSIONS)
def test_read_through_a_cache_in_any_chunks(name, cuts):
    """Two rows with other beginnings and other prompts; the second writes from its token 13 on, within a chunk."""
    extension, begins = EXTENSIONS[name], (0, -4)
    x = tensors(60, batch=2)
    written = torch.arange(60) >= torch.tensor([23, 17])[:, None]
    cache = cache_for(CacheState(extension, FACTS, begins=begins, weights=learned(extension)))
    edges = [0, *itertools.accumulate(cuts)]
    parts = [cache.read(*(part[:, :, a:b] for part in x), written[:, a:b]) for a, b in itertools.pairwise(edges)]
    positions = torch.stack([(torch.arange(60) + begin).clamp(min=PAD) for begin in begins])
    tokens = Tokens(positions, written_bj=written)
    expected = reference_attention(*x, extension, FACTS, tokens, weights=learned(extension))
    error = (torch.cat(parts, 2) - expected).abs().max() / expected.abs().max()
    assert error < CLOSE[torch.float64]


def test_a_cache_that_writes_keeps_all_keys_once():
    kept = CacheState(SWAA, FACTS), CacheState(parse("rope"), FACTS)
    assert kept[0].buffers == kept[1].buffers
    assert len(kept[0].buffers) == 1


def test_another_reach_does_not_ask_who_wrote_a_token():
    x, written = tensors(20), torch.ones(1, 20, dtype=torch.bool)
    for line in ("rope", "window:window=5"):
        extension = parse(line)
        assert extension.writing == extension
        assert torch.equal(
            attend(*x, extension, FACTS, Tokens(written_bj=written)), attend(*x, extension, FACTS, Tokens())
        )


def test_explained_for_each_kind_of_token():
    written = torch.arange(40)[None] >= 30
    said = explain(*tensors(40, dtype=torch.float32), SWAA, FACTS, Tokens(written_bj=written)).splitlines()
    assert [line.split(":")[0] for line in said] == ["1 row, 30 queries, 40 keys", "1 row, 10 written queries, 40 keys"]


@pytest.mark.parametrize("function", [attend, reference_attention])
@pytest.mark.parametrize("written", [torch.ones(1, 9, dtype=torch.bool), torch.ones(1, 10)], ids=["shape", "type"])
def test_refused_what_does_not_say_it_of_every_token(function, written):
    with pytest.raises(InvalidValue, match=r"written_bj must be true or false of each of \(1, 10\) tokens"):
        function(*tensors(10), SWAA, FACTS, Tokens(written_bj=written))


def test_the_window_is_one_that_the_model_knows():
    SWAA.check_against(FACTS)
    with pytest.raises(DoesNotFit, match="window must be at most 32 for a model trained on 32 tokens"):
        Extension(reach=ReadingWindow(window=33)).check_against(FACTS)
