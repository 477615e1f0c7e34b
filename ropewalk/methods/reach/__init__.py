"""Which keys a query sees, and at which effective distance."""

from ropewalk.methods.reach.blockwise import Blockwise as Blockwise
from ropewalk.methods.reach.causal import Causal as Causal
from ropewalk.methods.reach.chunks import Chunks as Chunks
from ropewalk.methods.reach.dpe import DPE as DPE
from ropewalk.methods.reach.dual_chunk import DualChunk as DualChunk
from ropewalk.methods.reach.lambda_mask import LambdaMask as LambdaMask
from ropewalk.methods.reach.lampe import LaMPE as LaMPE
from ropewalk.methods.reach.leaky_rerope import LeakyReRoPE as LeakyReRoPE
from ropewalk.methods.reach.reach import (
    Reach as Reach,
    Span as Span,
    effective_distances as effective_distances,
    furthest as furthest,
)
from ropewalk.methods.reach.reading_window import ReadingWindow as ReadingWindow
from ropewalk.methods.reach.rerope import ReRoPE as ReRoPE
from ropewalk.methods.reach.rerope_by_parts import ReRoPEByParts as ReRoPEByParts
from ropewalk.methods.reach.self_extend import SelfExtend as SelfExtend
from ropewalk.methods.reach.self_logistic import SELF as SELF
from ropewalk.methods.reach.sinks import Sinks as Sinks
from ropewalk.methods.reach.string import String as String
from ropewalk.methods.reach.window import Window as Window

ALL: tuple[type[Reach], ...] = (
    Causal,
    Window,
    Blockwise,
    Chunks,
    Sinks,
    LambdaMask,
    ReadingWindow,
    ReRoPE,
    LeakyReRoPE,
    ReRoPEByParts,
    SelfExtend,
    DPE,
    DualChunk,
    String,
    LaMPE,
    SELF,
)
