"""A text read through a cache in chunks, against the oracle on the whole text."""

import itertools

import torch

from ropewalk import Tokens, reference_attention
from ropewalk.attention import CacheState, cache_for
from ropewalk.extension.inputs import PAD

from attention.problems import CLOSE, learned
from examples import FACTS

CUTS = {"token by token": [1] * 60, "a prompt, then tokens": [23] + [1] * 37, "pieces": [20, 1, 17, 1, 1, 20]}


def read(extension, x, cuts, facts=FACTS, begins=(0,)):
    """The outputs of a cache that reads the text in these chunks, and the cache."""
    cache = cache_for(CacheState(extension, facts, begins=begins, weights=learned(extension, facts)))
    edges = [sum(cuts[:n]) for n in range(len(cuts) + 1)]
    parts = [cache.read(*(tensor[:, :, a:b] for tensor in x)) for a, b in itertools.pairwise(edges)]
    return torch.cat(parts, 2), cache


def assert_reads(extension, x, cuts, facts=FACTS, begins=(0,)):
    got, _ = read(extension, x, cuts, facts, begins)
    numbers = torch.stack([torch.arange(x[0].shape[2]) + begin for begin in begins]).clamp(min=PAD)
    positions = numbers.expand(len(x[0]), -1)
    expected = reference_attention(*x, extension, facts, Tokens(positions), weights=learned(extension, facts))
    assert got.dtype == x[0].dtype
    error = float((got.double() - expected).abs().max())
    assert error <= CLOSE[got.dtype] * max(1.0, float(expected.abs().max())), error
