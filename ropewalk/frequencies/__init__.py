"""theta: how fast each pair of dimensions is rotated."""

from ropewalk.frequencies.abf import ABF as ABF
from ropewalk.frequencies.by_parts import ByParts as ByParts
from ropewalk.frequencies.by_shares import ByShares as ByShares
from ropewalk.frequencies.dynamic import Dynamic as Dynamic
from ropewalk.frequencies.interpolation import Interpolation as Interpolation
from ropewalk.frequencies.llama3 import Llama3 as Llama3
from ropewalk.frequencies.longrope import LongRoPE as LongRoPE
from ropewalk.frequencies.none import NoPE as NoPE
from ropewalk.frequencies.ntk.ntk import NTK as NTK
from ropewalk.frequencies.ntk.ntk_fixed import NTKFixed as NTKFixed
from ropewalk.frequencies.ntk.ntk_mixed import NTKMixed as NTKMixed
from ropewalk.frequencies.ntk.ntk_old import NTKOld as NTKOld
from ropewalk.frequencies.rope import RoPE as RoPE
from ropewalk.frequencies.signature import Frequencies as Frequencies
from ropewalk.frequencies.signature import Table as Table
from ropewalk.frequencies.wrappers.cope import CoPE as CoPE
from ropewalk.frequencies.wrappers.partial import Partial as Partial
from ropewalk.frequencies.wrappers.resonance import Resonance as Resonance
from ropewalk.frequencies.xpos import XPos as XPos

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
