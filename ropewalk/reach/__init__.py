"""Which keys a query sees, and at which effective distance."""

from ropewalk.reach.blockwise import Blockwise as Blockwise
from ropewalk.reach.causal import Causal as Causal
from ropewalk.reach.chunks import Chunks as Chunks
from ropewalk.reach.compressed.dpe import DPE as DPE
from ropewalk.reach.compressed.leaky_rerope import LeakyReRoPE as LeakyReRoPE
from ropewalk.reach.compressed.rerope import ReRoPE as ReRoPE
from ropewalk.reach.compressed.rerope_by_parts import ReRoPEByParts as ReRoPEByParts
from ropewalk.reach.compressed.self_extend import SelfExtend as SelfExtend
from ropewalk.reach.dual_chunk import DualChunk as DualChunk
from ropewalk.reach.lambda_mask import LambdaMask as LambdaMask
from ropewalk.reach.signature import Reach as Reach
from ropewalk.reach.signature import Span as Span
from ropewalk.reach.signature import effective_distances as effective_distances
from ropewalk.reach.signature import furthest as furthest
from ropewalk.reach.sinks import Sinks as Sinks
from ropewalk.reach.string import String as String
from ropewalk.reach.window import Window as Window

ALL: tuple[type[Reach], ...] = (
    Causal,
    Window,
    Blockwise,
    Chunks,
    Sinks,
    LambdaMask,
    ReRoPE,
    LeakyReRoPE,
    ReRoPEByParts,
    SelfExtend,
    DPE,
    DualChunk,
    String,
)
