"""Subjects that share a corpus and no document."""

import torch

from evaluation.subjects import subject


def test_shares_are_every_so_many_and_together_all(tmp_path):
    from dataclasses import replace

    whole = subject(tmp_path, count=240)
    thirds = [replace(whole, every=3, first=first, _passages=[]) for first in range(3)]
    every = whole.passages(6)
    for place, ids in enumerate(every):
        assert torch.equal(ids, thirds[place % 3].passages(2)[place // 3])
    assert len({str(each.marks) for each in (whole, *thirds)}) == 4
