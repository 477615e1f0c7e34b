"""The distance that a reach gives a query and a key."""

import torch


def relative(reach, length):
    """Distance at which each key appears to each query; nan where it does not."""
    i = torch.arange(length)
    seen = torch.full((length, length), torch.nan, dtype=torch.float64)
    for span in reach.spans():
        start, stop = span.bounds(i)
        inside = (start[:, None] <= i) & (i < stop[:, None])
        distance = span.q_at(i).double()[:, None] - span.k_at(i).double()
        assert not (inside & ~seen.isnan()).any(), "spans overlap"
        seen = torch.where(inside, distance, seen)
    return seen
