"""One example of every method, for the tests that hold for all of them. A method without one turns the suite red."""

from ropewalk import Facts
from ropewalk.methods import biases, decoding, frequencies, positions, reach, scales, surgery

FACTS = Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2, layers=4)
PAIRS = 8

FREQUENCIES = (
    frequencies.RoPE(),
    frequencies.Interpolation(factor=4),
    frequencies.NTK(factor=4),
    frequencies.NTKOld(factor=4),
    frequencies.NTKFixed(factor=4),
    frequencies.NTKMixed(factor=4),
    frequencies.ByParts(factor=4),
    frequencies.ABF(),
    frequencies.Llama3(),
    frequencies.ByShares(factor=4, shares=(0.1, 0.1, 0.2, 0.4, 0.7, 1, 1, 1)),
    frequencies.LongRoPE(short=(1.0,) * PAIRS, long=(1, 1, 1.5, 2, 2.5, 3, 3.5, 4)),
    frequencies.XPos(),
    frequencies.Partial(share=0.5),
    frequencies.CoPE(),
    frequencies.Resonance(inner=frequencies.ByParts(factor=4)),
    frequencies.NoPE(),
    frequencies.Dynamic(inner=frequencies.ByParts(factor=1)),
)
REACH = (
    reach.Causal(),
    reach.Window(window=5),
    reach.Blockwise(block=8),
    reach.Chunks(chunk=6),
    reach.Sinks(window=6, n_sink=2),
    reach.LambdaMask(window=6, n_sink=2),
    reach.ReadingWindow(window=6, n_sink=2),
    reach.ReRoPE(window=5),
    reach.LeakyReRoPE(window=5, leak=4),
    reach.ReRoPEByParts(window=5, leak=4, low_turns=0.5, high_turns=3),
    reach.SelfExtend(window=5, group=3),
    reach.DPE(window=5, groups=(2, 5, 1)),
    reach.DualChunk(chunk=8, local=3),
    reach.String(shift=6, local=2),
    reach.LaMPE(head=6, tail=3, length=60, mapped=20),
    reach.SELF(window=5, capacity=4, rate=0.5),
)
BIASES = (
    biases.ALiBi(),
    biases.KerpleLog(),
    biases.KerplePower(),
    biases.Sandwich(),
    biases.GAURotary(),
    biases.T5(),
    biases.FIRE(),
    biases.FarDiscount(window=8),
    biases.BAM(),
)
SCALES = (
    scales.LogN(),
    scales.Temperature(value=1.3),
    scales.YarnTemperature(factor=4),
    scales.DeepSeekTemperature(factor=4, mscale=0.7, mscale_all_dim=0.2),
    scales.LongRoPETemperature(factor=4),
    scales.Llama4Temperature(beta=0.3, length=20),
    scales.HeadScale(),
    scales.SSMax(),
    scales.DynamicTemperature(inner=scales.YarnTemperature(factor=1)),
)
POSITIONS = (positions.Sequential(), positions.Randomized(limit=200), positions.PoSE(target_len=200))
DECODING = (
    decoding.NBCE(),
    decoding.MeanPooling(),
    decoding.MaxPooling(),
    decoding.PositionalContrast(beta=0.5, new_base=100),
    decoding.APE(),
)
SURGERY = (surgery.MHAToGQA(kv_heads=1), surgery.QKBias(), surgery.StretchPositions(target_len=64))

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
