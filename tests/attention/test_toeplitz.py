"""The line of numbers that stands for a mask."""

import torch

from ropewalk import Facts, parse
from ropewalk.attention.strands import strands
from ropewalk.attention.toeplitz import Diagonal, _blocks, _line, diagonal

from examples import FACTS


def only(text, queries, keys, facts=FACTS):
    numbers = torch.arange(keys)
    extension = parse(text)
    found = strands(extension, facts, numbers[keys - queries :], [numbers] * len(extension.spans.spans()))
    return [diagonal(strand, queries, keys) for strand in found]


def test_what_is_a_matter_of_the_distance_alone():
    assert only("causal", 10, 10) == [Diagonal(slice(0, 10), 0, 0, 10)]
    assert only("window:window=4", 10, 10) == [Diagonal(slice(0, 10), 0, 0, 3)]
    assert only("causal", 3, 10) == [Diagonal(slice(0, 3), 7, 0, 10)]
    assert only("blockwise:block=4", 10, 10) == [None]
    assert None in only("rerope:window=4", 20, 20)


def test_the_masks_of_the_blocks_are_the_definition():
    """Every block's view against f(i - j) written out, with minus infinity where a row must not look."""
    for text, queries, keys in (("causal", 700, 700), ("window:window=300", 700, 700), ("window:window=40", 300, 900)):
        (own,) = only(text, queries, keys, Facts(trained_len=1024, head_dim=8))
        line = _line(own, lambda distance: torch.stack([distance * 1.0, -distance * 2.0]), torch.zeros(1))
        for block in _blocks(own, queries, line):
            i = torch.arange(block.rows.stop - 1, block.rows.start - 1, -1)[:, None] + keys - queries
            distance = i - torch.arange(block.keys.start, block.keys.stop)
            hidden = (distance < 0) | (distance > own.furthest)
            largest = min(own.furthest, keys - 1)  # the largest of each head is taken off: it cancels
            expected = torch.stack([distance * 1.0 - largest, -distance * 2.0]).masked_fill(hidden, -torch.inf)
            assert torch.equal(block.mask[0], expected)
            assert (~hidden).any(1).all()
        assert line.numel() < 5 * keys
