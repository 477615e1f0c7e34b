"""Turns of each rotary pair: which angles training has shown, and which a longer text will ask for.

    turns_i = n theta_i / 2 pi          n = largest distance + 1

with the trained theta at the trained length, and with the method's theta at the longest distance that its reach shows
within the length asked for. A pair that never came round in training knows no angle beyond its last; asked for more, it
is where extrapolation fails (Peng et al. 2023, YaRN, arXiv:2309.00071, sec. 3.2; wavelength 2 pi / theta_i).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import RoPE
from ropewalk.reach import furthest


class PairAngles(NamedTuple):
    """One pair of dimensions."""

    pair: int
    theta: float  # radians a step, as the method has it
    slowed_by: float  # infinite where it stands still
    turns_trained: float
    turns_asked: float  # in the furthest row of a text of the length

    @property
    def unseen(self) -> bool:
        """Whether it meets angles that training has not shown: it never came round, and is asked for more."""
        return self.turns_trained < 1 and self.turns_asked > self.turns_trained * (1 + 1e-9)


def pair_angles(extension: Extension, facts: Facts, length: int) -> list[PairAngles]:
    """Of every pair, fastest first, for texts of a length; of the first layer where layers differ."""
    own = extension.at_layer(0, facts)
    before, after = RoPE().table(facts, length).inv_freq, own.theta.table(facts, length).inv_freq
    reached = furthest(own.spans, length - 1) + 1
    full = 2 * math.pi
    return [
        PairAngles(
            pair=index,
            theta=theta,
            slowed_by=original / theta if theta else math.inf,
            turns_trained=facts.trained_len * original / full,
            turns_asked=reached * theta / full,
        )
        for index, (original, theta) in enumerate(zip(before.tolist(), torch.as_tensor(after).tolist(), strict=True))
    ]
