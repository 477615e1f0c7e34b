"""Weights that change: a state dict and its facts in, new ones out."""

from ropewalk.surgery.mha_to_gqa import MHAToGQA as MHAToGQA
from ropewalk.surgery.qk_bias import QKBias as QKBias
from ropewalk.surgery.signature import State as State
from ropewalk.surgery.signature import Surgery as Surgery
from ropewalk.surgery.stretch_positions import StretchPositions as StretchPositions

ALL: tuple[type[Surgery], ...] = (
    MHAToGQA,
    QKBias,
    StretchPositions,
)
