"""The oracle, against torch, against complex numbers, and against itself under everything that must not matter."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ropewalk import Extension, Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.equation import PAD, reference_logits, rotate
from ropewalk.methods.biases import KerpleLog
from ropewalk.methods.frequencies import ByParts, Dynamic, NoPE, RoPE
from ropewalk.methods.positions import Randomized
from ropewalk.methods.reach import Causal, Window
from ropewalk.methods.scales import HeadScale, LogN

from examples import EXAMPLES, FACTS
from methods.reach.relative import relative

N = 41  # beyond the 32 trained tokens, and odd
SINGLE = [
    Extension(**{slot: (spec,) if slot in ("biases", "scales") else spec})
    for slot in ("frequencies", "reach", "biases", "scales", "positions")
    for spec in EXAMPLES[slot]
]
each_method = pytest.mark.parametrize("extension", SINGLE, ids=lambda each: str(next(iter(each.specs.values()))[0]))


def tensors(length=N, batch=1, facts=FACTS, seed=0):
    rng = torch.Generator().manual_seed(seed)
    sizes = [(batch, heads, length, facts.head_dim) for heads in (facts.heads, facts.groups, facts.groups)]
    return [torch.randn(size, generator=rng, dtype=torch.float64) for size in sizes]


def weights_of(extension):
    return extension.weights(FACTS, torch.Generator().manual_seed(7))


def attend(extension, q, k, v, **given):
    weights = {} if extension.layers else weights_of(extension)
    return reference_attention(q, k, v, extension, FACTS, weights=weights, **given)


def test_plain_attention_is_torchs():
    q, k, v = tensors()
    table, at = RoPE().table(FACTS, 1), torch.arange(N)[None]
    turned = rotate(q, at, table, False), rotate(k, at, table, False)
    expected = scaled_dot_product_attention(*turned, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(attend(Extension(), q, k, v), expected)


def test_without_positions_nothing_turns():
    q, k, v = tensors()
    expected = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(attend(Extension(frequencies=NoPE()), q, k, v), expected)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [6, 16])
def test_a_temperature_of_the_rotation_is_the_square_of_what_transformers_multiplies_cos_and_sin_by(
    interleaved, rotary_dim
):
    """Over the head it multiplies the whole logit. Where all dimensions rotate, both are the same."""
    facts, f = replace(FACTS, rotary_dim=rotary_dim, interleaved=interleaved), 0.1 * math.log(4) + 1
    q, k, _ = tensors(facts=facts)
    plain = reference_logits(q, k, parse("by_parts:factor=4"), facts)
    rest = q[..., rotary_dim:] @ k[..., rotary_dim:].repeat_interleave(2, 1).mT / math.sqrt(facts.head_dim)
    visible = torch.isfinite(plain)
    for line, expected in (
        ("yarn:factor=4", f**2 * (plain - rest) + rest),
        ("yarn:factor=4,over=head", f**2 * plain),
        ("yarn:factor=4+temperature:value=1.5", 1.5 * (f**2 * (plain - rest) + rest)),
    ):
        got = reference_logits(q, k, parse(line), facts)
        torch.testing.assert_close(got[visible], expected[visible], rtol=1e-12, atol=1e-12)


def test_a_temperature_multiplies_the_dimensions_that_the_schedule_rotates():
    """A quarter of the head, as GPT-NeoX; the rest of what the model rotates is at rest."""
    q, k, _ = tensors()
    quarter = parse("partial:share=0.25+yarn_temperature:factor=4")
    plain = reference_logits(q, k, parse("partial:share=0.25"), FACTS)
    rest = q[..., 4:] @ k[..., 4:].repeat_interleave(2, 1).mT / math.sqrt(FACTS.head_dim)
    got, visible = reference_logits(q, k, quarter, FACTS), torch.isfinite(plain)
    expected = (0.1 * math.log(4) + 1) ** 2 * (plain - rest) + rest
    torch.testing.assert_close(got[visible], expected[visible], rtol=1e-12, atol=1e-12)


def apart_by_pair(extension, facts, numbers, apart):
    """The distances of every pair, [rows, keys, pairs]."""
    inv_freq = extension.frequencies_or_rope.table(facts, 1).inv_freq
    apart = apart[:, :, None].repeat(1, 1, len(inv_freq))
    for span in extension.reach_or_causal.spans():
        start, stop = span.bounds(numbers)
        inside = (start[:, None] <= numbers) & (numbers < stop[:, None])
        if span.pairs is not None:
            places = [
                span.pairs[side](numbers[:, None], inv_freq * facts.trained_len / (2 * math.pi)) for side in (0, 1)
            ]
            apart = torch.where(inside[:, :, None], places[0][:, None] - places[1][None], apart)
    return apart


def complex_attention(extension, q, k, v, facts):
    """The equation in complex numbers, from a matrix of apparent distances: no vector is ever rotated."""
    length, numbers = q.shape[2], extension.positions_or_sequential.number(q.shape[2])
    apart = relative(extension.reach_or_causal, int(numbers[-1]) + 1)[numbers][:, numbers]
    k, v = (x.repeat_interleave(facts.heads // facts.groups, 1) for x in (k, v))
    tables = [extension.frequencies_or_rope.table(facts, int(number) + 1) for number in numbers]
    turning = 2 * len(tables[0].inv_freq)

    def join(x):
        if facts.interleaved:
            return torch.view_as_complex(x[..., :turning].unflatten(-1, (-1, 2)).contiguous())
        return torch.complex(x[..., : turning // 2], x[..., turning // 2 : turning])

    rate = torch.stack([torch.complex(table.log_decay, table.inv_freq) for table in tables])
    turns = torch.exp(apart_by_pair(extension, facts, numbers, apart.nan_to_num()) * rate[:, None, :])
    logits = torch.einsum("bhic,bhjc,ijc->bhij", join(q), join(k).conj(), turns).real
    logits = (logits + q[..., turning:] @ k[..., turning:].mT) / facts.head_dim**0.5
    weights = weights_of(extension)
    for scale in extension.scales:
        logits = logits * scale.scale(numbers, facts, weights.get(scale.name, {}))[None, :, :, None]
    for bias in extension.biases:
        query = numbers[:, None].expand(length, length)
        logits = logits + bias.bias(apart.nan_to_num(), query, facts, weights.get(bias.name, {}))[None]
    return logits.masked_fill(apart.isnan(), -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
@each_method
def test_every_method_equals_the_complex_equation(extension, interleaved):
    facts = replace(FACTS, interleaved=interleaved)
    q, k, v = tensors()
    got = reference_attention(q, k, v, extension, facts, weights=weights_of(extension))
    torch.testing.assert_close(got, complex_attention(extension, q, k, v, facts), rtol=1e-9, atol=1e-9)


def test_factors_compose():
    for text in (
        "dynamic_yarn+rerope:window=5+log_n+biases.alibi+scales.head_scale",
        "alibi+streaming:window=6,n_sink=2",
    ):
        extension, (q, k, v) = parse(text), tensors()
        torch.testing.assert_close(attend(extension, q, k, v), complex_attention(extension, q, k, v, FACTS))


def test_factors_of_rotated_queries_by_hand():
    """One pair, rotated by a quarter: the query (1, 0) is (0, 1) at position 1, times (2, 3); the key (5, 7) stays."""
    facts = Facts(trained_len=4, head_dim=2, heads=1, inv_freq=(math.pi / 2,), weighted=True)
    q, k = torch.tensor([[[[0.0, 0], [1, 0]]]]), torch.tensor([[[[5.0, 7], [0, 0]]]])
    weights = {"model": {"after_rotation": torch.tensor([2.0, 3.0])}}
    got = reference_logits(q, k, parse("rope"), facts, weights=weights)
    assert float(got[0, 0, 1, 0]) == pytest.approx(3 * 7 / math.sqrt(2))


def test_a_cap_and_a_sink_by_hand():
    """Products of 3 and 1 for two keys, a bias of -1/2 a step; the cap is put on their sum, the sink is as it is."""
    facts = Facts(trained_len=4, head_dim=4, heads=8, softcap=2.0, sinks=True)
    q, k, v = torch.zeros(3, 1, 8, 2, 4, dtype=torch.float64)
    q[..., 0], k[..., 0, 0], k[..., 1, 0] = 2, 3, 1
    v[..., 0, 0], v[..., 1, 1] = 1, 1
    sinks = torch.arange(8.0)
    got = reference_attention(q, k, v, parse("alibi"), facts, weights={"model": {"sinks": sinks}})
    for h, sink in enumerate(sinks.tolist()):
        far, near = (math.exp(2 * math.tanh(logit / 2)) for logit in (3 - 0.5 ** (h + 1), 1))
        total = far + near + math.exp(sink)
        torch.testing.assert_close(got[0, h, 1], torch.tensor([far / total, near / total, 0, 0], dtype=torch.float64))
        alone = math.exp(2 * math.tanh(3 / 2))
        assert float(got[0, h, 0, 0]) == pytest.approx(alone / (alone + math.exp(sink)))


def test_a_bias_sees_the_distance_that_is_shown():
    """StreamingLLM under ALiBi: the sinks stay as near as the cache shows them, however long the text grows."""
    extension = parse("alibi+streaming:window=6,n_sink=2")
    q, k, v = (torch.zeros_like(x) for x in tensors(length=100))
    v[:, :, :2] = 1
    mass = attend(extension, q, k, v)[0, 0, :, 0]
    torch.testing.assert_close(mass[20:], mass[20].expand(80))
    assert mass[20] > 0.01


@each_method
def test_the_last_queries_alone_answer_as_in_the_whole(extension):
    q, k, v = tensors()
    whole = attend(extension, q, k, v)
    for queries in (1, 7):
        torch.testing.assert_close(attend(extension, q[:, :, -queries:], k, v), whole[:, :, -queries:])


@each_method
def test_a_row_sees_nothing_of_what_follows(extension):
    if extension.positions_or_sequential.name == "randomized":
        pytest.skip("evenly spaced numbers depend on the length by definition")
    q, k, v = tensors()
    short = attend(extension, q[:, :, :20], k[:, :, :20], v[:, :, :20])
    torch.testing.assert_close(attend(extension, q, k, v)[:, :, :20], short)


@pytest.mark.parametrize("side", ["left", "right"])
@each_method
def test_padding_and_batch_mates_do_not_matter(extension, side):
    """A row of 20 tokens beside one of 41, with NaN where it is padded."""
    q, k, v = tensors(batch=2)
    numbers = extension.positions_or_sequential.number(20)
    place = slice(N - 20, N) if side == "left" else slice(0, 20)
    positions = torch.full((2, N), PAD)
    positions[0], positions[1, place] = extension.positions_or_sequential.number(N), numbers
    for x in (q, k, v):
        x[1, :, positions[1] == PAD] = torch.nan
    got = attend(extension, q, k, v, tokens=Tokens(positions))
    alone = attend(extension, *(x[1:, :, place] for x in (q, k, v)), tokens=Tokens(numbers[None]))
    torch.testing.assert_close(got[1:, :, place], alone)
    torch.testing.assert_close(got[:1], attend(extension, q[:1], k[:1], v[:1]))
    padded = torch.ones(N, dtype=torch.bool)
    padded[place] = False
    assert (got[1, :, padded] == 0).all()


@each_method
def test_packed_documents_do_not_see_each_other(extension):
    q, k, v = tensors()
    number = extension.positions_or_sequential.number
    positions = torch.cat([number(25), number(N - 25)])[None]
    documents = torch.tensor([[0] * 25 + [1] * (N - 25)])
    got = attend(extension, q, k, v, tokens=Tokens(documents_bj=documents))
    assert torch.equal(attend(extension, q, k, v, tokens=Tokens(positions, documents_bj=documents)), got)
    for part in (slice(0, 25), slice(25, N)):
        alone = attend(extension, *(x[:, :, part] for x in (q, k, v)), tokens=Tokens(positions[:, part]))
        torch.testing.assert_close(got[:, :, part], alone)


@pytest.mark.parametrize("text", ["dynamic_yarn", "dynamic_ntk", "log_n", "rerope:window=31", "streaming:window=28"])
def test_identity_within_the_trained_length(text):
    """Bit for bit the plain rows where the method promises it; sums over other spans may differ in the last place."""
    q, k, v = tensors()
    changed, plain = attend(parse(text), q, k, v), attend(Extension(), q, k, v)
    if parse(text).reach is None:
        assert torch.equal(changed[:, :, :32], plain[:, :, :32])
    torch.testing.assert_close(changed[:, :, :28], plain[:, :, :28], rtol=0, atol=1e-12)
    assert (changed[:, :, 33:] - plain[:, :, 33:]).abs().amax() > 1e-3


def test_layers_have_their_own_extension():
    q, k, v = tensors()
    last = Extension(frequencies=NoPE(), reach=Causal(), scales=(LogN(clipped=False),))
    mixed = Extension(reach=Window(window=4), layers={-1: last})
    for layer, expected in ((0, Extension(reach=Window(window=4))), (3, last), (-1, last)):
        torch.testing.assert_close(attend(mixed.at_layer(layer, FACTS), q, k, v), attend(expected, q, k, v))
    with pytest.raises(InvalidValue, match=r"this extension differs between layers; take that of one by at_layer\("):
        attend(mixed, q, k, v)


def test_learned_numbers_are_used_and_receive_gradients():
    q, k, v = tensors()
    extension = Extension(biases=(KerpleLog(),), scales=(HeadScale(),))
    weights = weights_of(extension)
    learned = [tensor.requires_grad_() for group in weights.values() for tensor in group.values()]
    reference_attention(q, k, v, extension, FACTS, weights=weights).square().sum().backward()
    assert len(learned) == 3
    assert all(tensor.grad is not None and tensor.grad.abs().sum() > 0 for tensor in learned)


@pytest.mark.parametrize("text", ["yarn:factor=4", "rerope:window=3+log_n", "xpos", "sandwich", "streaming:window=3"])
def test_gradients_are_those_of_the_function(text):
    facts = Facts(trained_len=8, head_dim=4, heads=2, kv_heads=1)
    q, k, v = (x.requires_grad_() for x in tensors(length=9, facts=facts))
    assert torch.autograd.gradcheck(lambda *x: reference_attention(*x, parse(text), facts), (q, k, v))


def test_positions_of_the_extension_number_the_keys():
    q, k, v = tensors(length=9)
    spaced = Extension(positions=Randomized(limit=90))
    by_hand = attend(Extension(), q, k, v, tokens=Tokens(torch.arange(0, 90, 10)[None]))
    torch.testing.assert_close(attend(spaced, q, k, v), by_hand)


def test_rows_stretch_by_their_own_length():
    """Each row equals static interpolation by the factor that its length needs."""
    q, k, v = tensors()
    got = attend(Extension(frequencies=Dynamic(inner=ByParts(factor=1), steps=None)), q, k, v)
    for row in (31, 32, 36, 40):
        static = Extension(frequencies=ByParts(factor=max(1, (row + 1) / 32)))
        torch.testing.assert_close(got[:, :, row], attend(static, q, k, v)[:, :, row])


def test_the_answer_is_float64_whatever_comes_in():
    q, k, v = (x.bfloat16() for x in tensors())
    got = attend(Extension(), q, k, v)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, attend(Extension(), q.double(), k.double(), v.double()))


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda q, k, v: (q[:, :3], k, v), "q must be"),
        (lambda q, k, v: (q[..., :8], k, v), "q must be"),
        (lambda q, k, v: (torch.cat([q, q], 2), k, v), "q must be"),
        (lambda q, k, v: (q, k[:, :1], v), "k must be"),
        (lambda q, k, v: (q, k, v[:, :, :-1]), "v must be"),
    ],
)
def test_wrong_shapes_are_refused(cut, message):
    with pytest.raises(InvalidValue, match=message):
        attend(Extension(), *cut(*tensors()))


def test_xpos_far_out_is_xpos():
    """Only the distance counts, also where the decay of a position on its own has long overflowed."""
    q, k, v = tensors(length=9)
    here, far = (attend(parse("xpos"), q, k, v, tokens=Tokens(torch.arange(9)[None] + start)) for start in (0, 10**7))
    torch.testing.assert_close(far, here, rtol=0, atol=1e-7)


def test_no_queries_give_no_answers():
    q, k, v = tensors()
    tokens = Tokens(documents_bj=torch.zeros(1, N, dtype=torch.int64))
    assert attend(Extension(), q[:, :, :0], k, v, tokens=tokens).shape == (1, 4, 0, 16)


@pytest.mark.parametrize(
    "weights",
    [{}, {"t5": {}}, {"t5": {"table": torch.zeros(32, 1)}}, {"t5": {"table": torch.zeros(32, 4)}, "t6": {}}],
    ids=str,
)
def test_learned_numbers_that_do_not_fit_are_refused(weights):
    with pytest.raises(InvalidValue, match=r"weights must be {'t5': {'table': \(32, 4\)}}, got .*start from"):
        reference_attention(*tensors(), parse("t5"), FACTS, weights=weights)
