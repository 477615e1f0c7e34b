"""theta: how fast each pair of dimensions is rotated."""

from ropewalk.methods.frequencies.abf import ABF as ABF
from ropewalk.methods.frequencies.by_parts import ByParts as ByParts
from ropewalk.methods.frequencies.by_shares import ByShares as ByShares
from ropewalk.methods.frequencies.cope import CoPE as CoPE
from ropewalk.methods.frequencies.dynamic import Dynamic as Dynamic
from ropewalk.methods.frequencies.frequencies import Frequencies as Frequencies, Table as Table
from ropewalk.methods.frequencies.interpolation import Interpolation as Interpolation
from ropewalk.methods.frequencies.llama3 import Llama3 as Llama3
from ropewalk.methods.frequencies.longrope import LongRoPE as LongRoPE
from ropewalk.methods.frequencies.none import NoPE as NoPE
from ropewalk.methods.frequencies.ntk import NTK as NTK
from ropewalk.methods.frequencies.ntk_fixed import NTKFixed as NTKFixed
from ropewalk.methods.frequencies.ntk_mixed import NTKMixed as NTKMixed
from ropewalk.methods.frequencies.ntk_old import NTKOld as NTKOld
from ropewalk.methods.frequencies.partial import Partial as Partial
from ropewalk.methods.frequencies.resonance import Resonance as Resonance
from ropewalk.methods.frequencies.rope import RoPE as RoPE
from ropewalk.methods.frequencies.xpos import XPos as XPos

ALL: tuple[type[Frequencies], ...] = (
    RoPE,
    Interpolation,
    NTK,
    NTKOld,
    NTKFixed,
    NTKMixed,
    ByParts,
    ByShares,
    ABF,
    Llama3,
    LongRoPE,
    XPos,
    Partial,
    CoPE,
    Resonance,
    NoPE,
    Dynamic,
)
