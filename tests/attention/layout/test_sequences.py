"""Which sequences a batch holds, by hand; and rows without any."""

import pytest
import torch

from ropewalk import Tokens, parse
from ropewalk.attention import attend
from ropewalk.attention.layout.sequences import sequence_groups
from ropewalk.extension.inputs import PAD

from attention.problems import assert_equal, tensors
from examples import FACTS


def groups(numbers, documents, queries):
    tokens = Tokens(documents_bj=None if documents is None else torch.tensor(documents))
    return [
        (text.batch, text.slots, text.numbers.tolist(), text.queries)
        for text in sequence_groups(torch.tensor(numbers), tokens, queries)
    ]


def test_texts_that_ask():
    """Of two documents, the first has no query among the last tokens; with one query more it has one."""
    packed, documents = [[0, 1, 2, 0, 1]], [[4, 4, 4, 7, 7]]
    assert groups(packed, documents, 1) == [([0], slice(3, 5), [0, 1], 1)]
    assert groups(packed, documents, 2) == [([0], slice(3, 5), [0, 1], 2)]
    assert groups(packed, documents, 3) == [([0], slice(0, 3), [0, 1, 2], 1), ([0], slice(3, 5), [0, 1], 2)]


def test_rows_that_are_alike_are_dispatch():
    rows = [[0, 1, 2], [PAD, 0, 1], [0, 1, 2], [PAD, PAD, PAD], [5, 6, 7]]
    assert groups(rows, None, 3) == [
        ([0, 2], slice(0, 3), [0, 1, 2], 3),
        ([1], slice(1, 3), [0, 1], 2),
        ([4], slice(0, 3), [5, 6, 7], 3),
    ]


@pytest.mark.parametrize("text", ["causal", "rerope:window=5", "biases.alibi"])
@pytest.mark.parametrize("empty", [0, 1])
def test_a_row_of_padding_alone_gets_nothing(text, empty):
    numbers = torch.arange(20).repeat(2, 1)
    numbers[empty] = PAD
    assert_equal(parse(text), tensors(20, batch=2), tokens=Tokens(numbers))
    vectors = tensors(20, batch=2)
    vectors[2][empty] = torch.nan  # not even what is no number
    answer = attend(*vectors, parse(text), FACTS, Tokens(numbers))
    assert not answer[empty].any()
    assert answer.isfinite().all()
