"""How the next-token distributions of several contexts become one."""

from ropewalk.methods.decoding.ape import APE as APE
from ropewalk.methods.decoding.decoding import Combined as Combined, Decoding as Decoding
from ropewalk.methods.decoding.max_pooling import MaxPooling as MaxPooling
from ropewalk.methods.decoding.mean_pooling import MeanPooling as MeanPooling
from ropewalk.methods.decoding.nbce import NBCE as NBCE
from ropewalk.methods.decoding.positional_contrast import PositionalContrast as PositionalContrast

ALL: tuple[type[Decoding], ...] = (
    NBCE,
    MeanPooling,
    MaxPooling,
    PositionalContrast,
    APE,
)
