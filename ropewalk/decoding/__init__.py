"""How the next-token distributions of several contexts become one."""

from ropewalk.decoding.max_pooling import MaxPooling as MaxPooling
from ropewalk.decoding.mean_pooling import MeanPooling as MeanPooling
from ropewalk.decoding.nbce import NBCE as NBCE
from ropewalk.decoding.signature import Combined as Combined
from ropewalk.decoding.signature import Decoding as Decoding

ALL: tuple[type[Decoding], ...] = (
    NBCE,
    MeanPooling,
    MaxPooling,
)
