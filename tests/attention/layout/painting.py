"""Which pairs of queries and keys tiles cover, painted one by one."""

import torch


def painted(pieces, rows, keys):
    """How often each pair is covered."""
    count = torch.zeros(rows, keys, dtype=torch.int64)
    for piece in pieces:
        for t in range(piece.rows):
            first, end = {
                "rectangle": (0, piece.keys),
                "triangle": (0, t + 1),
                "band": (t, t + piece.keys - piece.rows + 1),
            }[piece.kind]
            count[piece.row + t, piece.key + first : piece.key + end] += 1
    return count


def wanted(start, stop, keys):
    j = torch.arange(keys)
    return ((start[:, None] <= j) & (j < stop[:, None])).long()
