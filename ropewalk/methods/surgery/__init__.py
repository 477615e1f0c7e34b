"""Weights that change: a state dict and its facts in, new ones out."""

from ropewalk.methods.surgery.mha_to_gqa import MHAToGQA as MHAToGQA
from ropewalk.methods.surgery.qk_bias import QKBias as QKBias
from ropewalk.methods.surgery.stretch_positions import StretchPositions as StretchPositions
from ropewalk.methods.surgery.surgery import State as State, Surgery as Surgery

ALL: tuple[type[Surgery], ...] = (
    MHAToGQA,
    QKBias,
    StretchPositions,
)
