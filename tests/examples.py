"""One example of every method, for the tests that hold for all of them. A method without one turns the suite red."""

from ropewalk import Facts
from ropewalk.biases import FIRE, T5, ALiBi, GAURotary, KerpleLog, KerplePower, Sandwich
from ropewalk.decoding import NBCE, MeanPooling
from ropewalk.frequencies import (
    ABF,
    NTK,
    ByParts,
    Dynamic,
    Interpolation,
    Llama3,
    LongRoPE,
    NoPE,
    NTKFixed,
    NTKMixed,
    NTKOld,
    Partial,
    RoPE,
    XPos,
)
from ropewalk.positions import PoSE, Randomized, Sequential
from ropewalk.reach import (
    Blockwise,
    Causal,
    DualChunk,
    LambdaMask,
    LeakyReRoPE,
    ReRoPE,
    SelfExtend,
    Sinks,
    Window,
)
from ropewalk.scales import (
    DeepSeekTemperature,
    DynamicTemperature,
    HeadScale,
    LogN,
    LongRoPETemperature,
    Temperature,
    YarnTemperature,
)
from ropewalk.surgery import MHAToGQA, QKBias, StretchPositions

FACTS = Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2, layers=4)
PAIRS = 8

FREQUENCIES = (
    RoPE(),
    Interpolation(factor=4),
    NTK(factor=4),
    NTKOld(factor=4),
    NTKFixed(factor=4),
    NTKMixed(factor=4),
    ByParts(factor=4),
    ABF(),
    Llama3(),
    LongRoPE(short=(1.0,) * PAIRS, long=(1, 1, 1.5, 2, 2.5, 3, 3.5, 4)),
    XPos(),
    Partial(share=0.5),
    NoPE(),
    Dynamic(inner=ByParts(factor=1)),
)
REACH = (
    Causal(),
    Window(window=5),
    Blockwise(block=8),
    Sinks(window=6, n_sink=2),
    LambdaMask(window=6, n_sink=2),
    ReRoPE(window=5),
    LeakyReRoPE(window=5, leak=4),
    SelfExtend(window=5, group=3),
    DualChunk(chunk=8, local=3),
)
BIASES = (ALiBi(), KerpleLog(), KerplePower(), Sandwich(), GAURotary(), T5(), FIRE())
SCALES = (
    LogN(),
    Temperature(value=1.3),
    YarnTemperature(factor=4),
    DeepSeekTemperature(factor=4, mscale=0.7, mscale_all_dim=0.2),
    LongRoPETemperature(factor=4),
    HeadScale(),
    DynamicTemperature(inner=YarnTemperature(factor=1)),
)
POSITIONS = (Sequential(), Randomized(limit=200), PoSE(target_len=200))
DECODING = (NBCE(), MeanPooling())
SURGERY = (MHAToGQA(kv_heads=1), QKBias(), StretchPositions(target_len=64))

EXAMPLES = {
    "frequencies": FREQUENCIES,
    "reach": REACH,
    "biases": BIASES,
    "scales": SCALES,
    "positions": POSITIONS,
    "decoding": DECODING,
    "surgery": SURGERY,
}
EVERY = [spec for specs in EXAMPLES.values() for spec in specs]
