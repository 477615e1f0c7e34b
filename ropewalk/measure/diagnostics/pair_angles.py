"""Rotations of each rotary pair: which angles occurred in training, and which a longer text needs.

    turns_i = n theta_i / 2 pi          n = largest distance + 1

in training with the trained theta at the trained length; in a longer text with the method's theta at the longest
effective distance of its reach. A pair without a full rotation in training has met no angle beyond its last, so
extrapolation fails there (Peng et al. 2023, YaRN, arXiv:2309.00071, sec. 3.2; wavelength 2 pi / theta_i).
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.extension.extension import Extension
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import RoPE
from ropewalk.methods.reach import Reach


class PairAngles(NamedTuple):
    """One pair of dimensions."""

    pair: int
    theta: float  # radians per token under the method
    slowed_by: float  # infinite if it does not rotate
    turns_trained: float
    turns_asked: float  # in the last row of a text of the length

    @property
    def unseen(self) -> bool:
        """Whether it meets angles that did not occur in training: no full rotation there, and more of it now."""
        return self.turns_trained < 1 and self.turns_asked > self.turns_trained * (1 + 1e-9)


def pair_angles(extension: Extension, facts: Facts, length: int) -> list[PairAngles]:
    """Of every pair, fastest first, for texts of a length; of the first layer if layers differ."""
    first_layer = extension.at_layer(0, facts)
    before, after = RoPE().table(facts, length).inv_freq, first_layer.theta.table(facts, length).inv_freq
    reached = _furthest(first_layer.spans, length - 1, first_layer.turns(facts)) + 1
    full = 2 * math.pi
    # A partial rotation has no entry for the pairs that it leaves alone.
    pairs = zip_longest(before.tolist(), after.tolist(), reached.tolist(), fillvalue=0.0)
    return [
        PairAngles(
            pair=index,
            theta=theta,
            slowed_by=original / theta if theta else math.inf,
            turns_trained=facts.trained_len * original / full,
            turns_asked=most * theta / full,
        )
        for index, (original, theta, most) in enumerate(pairs)
    ]


def _furthest(reach: Reach, i: int, turns: Tensor) -> Tensor:
    """The largest effective distance of each pair in a row: that of the first key of a span."""
    row, most = torch.tensor([i]), torch.zeros_like(turns)
    for span in reach.spans():
        start, stop = span.bounds(row)
        if start < stop:
            places = span.q_rotated(row, turns).double(), span.k_rotated(start, turns).double()
            most = torch.maximum(most, (places[0] - places[1]).flatten().expand_as(turns))
    return most
