"""Promise P1: `attend` equals the oracle, outputs and gradients, for every method."""

from dataclasses import replace

import pytest
import torch

from ropewalk import DoesNotFit, Extension, Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import attend, explain
from ropewalk.attention.torch_kernels import fused
from ropewalk.extension.inputs import PAD
from ropewalk.methods.reach import Causal

from attention.problems import EVERY, assert_equal, every, learned, tensors
from examples import FACTS


@pytest.mark.sampled
@every
@pytest.mark.parametrize("length", [1, 2, 63, 150])
def test_equals_the_oracle_in_float64(extension, length):
    assert_equal(extension, tensors(length))


@pytest.mark.sampled
@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equals_the_oracle_in_the_models_precision(extension, dtype):
    assert_equal(extension, tensors(97, dtype=dtype))


@pytest.mark.sampled(cases=40)
@every
def test_a_batch_padded_on_either_side(extension):
    q, k, v = tensors(60, batch=3)
    number, positions = extension.positions_or_sequential.number, torch.full((3, 60), PAD)
    positions[0], positions[1, 25:], positions[2, :41] = number(60), number(35), number(41)
    for x in (q, k, v):
        x.movedim(2, 1)[positions == PAD] = 0.0
    assert_equal(extension, [q, k, v], tokens=Tokens(positions))


@every
def test_packed_documents(extension):
    documents = torch.tensor([[0] * 30 + [1] * 1 + [2] * 29, [5] * 60])
    assert_equal(extension, tensors(60, batch=2), tokens=Tokens(documents_bj=documents))


@pytest.mark.sampled(cases=24)
@every
def test_some_queries_of_many_keys(extension):
    for queries in (1, 7, 50):
        assert_equal(extension, tensors(77, batch=2, queries=queries))


@pytest.mark.sampled(cases=12)
@every
def test_whole_in_chunks_and_token_by_token(extension):
    """Promise P2 for `attend`. Evenly spaced numbers are those of the whole text."""
    q, k, v = tensors(70)
    numbers, weights = extension.positions_or_sequential.number(70)[None], learned(extension)
    whole = attend(q, k, v, extension, FACTS, weights=weights)
    for size in (1, 16, 33):
        parts = [
            attend(
                *(q[:, :, first : first + size], k[:, :, : first + size], v[:, :, : first + size]),
                *(extension, FACTS),
                weights=weights,
                tokens=Tokens(numbers[:, : min(first + size, 70)]),
            )
            for first in range(0, 70, size)
        ]
        torch.testing.assert_close(torch.cat(parts, 2), whole, rtol=0, atol=1e-11)


def test_heads_that_differ_lie_between_others():
    """Heads are computed together by what they share, and put back where they were."""
    facts = Facts(trained_len=16, head_dim=8, heads=8, kv_heads=4)
    extension = replace(
        parse("streaming:window=6,n_sink=2"), heads={0: Extension(reach=Causal()), 2: parse("pi:factor=4")}
    )
    assert_equal(extension, tensors(60, facts), facts)


@pytest.mark.sampled
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("head_dim", [8, 64, 128])
@pytest.mark.parametrize("text", ["rerope:window=7", "dual_chunk:chunk=9,local=4", "biases.alibi", "dynamic_ntk"])
def test_grouped_heads_of_every_size(groups, head_dim, text):
    facts = Facts(trained_len=16, head_dim=head_dim, heads=8, kv_heads=groups)
    assert_equal(parse(text), tensors(65, facts, batch=2), facts)


LONG = (
    "biases.alibi",
    "sandwich+window:window=300",
    "rerope:window=300",
    "streaming:window=128",
    "window:window=200",
    "dual_chunk:chunk=400,local=64",
)


@pytest.mark.sampled
@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("length", [500, 1025])
def test_texts_of_many_blocks(text, length):
    facts = Facts(trained_len=512, head_dim=16, heads=2)
    assert_equal(parse(text), tensors(length, facts, dtype=torch.float32), facts)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [None, 6])
def test_layouts_of_pairs(interleaved, rotary_dim):
    facts = replace(FACTS, interleaved=interleaved, rotary_dim=rotary_dim)
    for text in (
        "rerope:window=5",
        "xpos",
        "dynamic_yarn",
        "biases.t5",
        "yarn:factor=4",
        "partial:share=0.25+yarn_temperature:factor=4",
    ):
        assert_equal(parse(text), tensors(50, facts), facts)


def test_any_stride():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors(90, batch=2))
    assert not q.is_contiguous()
    assert_equal(parse("rerope:window=5"), [q, k, v])


def test_vectors_whose_numbers_are_not_neighbours():
    q, k, v = (x.transpose(2, 3).contiguous().transpose(2, 3) for x in tensors(90, batch=2))
    assert v.stride(-1) != 1
    for text in ("rope", "nope", "rerope:window=5", "biases.alibi", "biases.fire"):
        assert_equal(parse(text), [q, k, v])


@pytest.mark.parametrize("text", ["rope", "biases.alibi", "rerope:window=5"])
def test_values_of_another_size_than_the_queries(text):
    q, k, v = tensors(50)
    assert_equal(parse(text), [q, k, v[..., :6].contiguous()])


def test_autocast_changes_nothing():
    inputs = tensors(60, dtype=torch.float32)
    for text in ("rerope:window=5", "biases.fire"):
        weights = learned(parse(text))
        plain = attend(*inputs, parse(text), FACTS, weights=weights)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(attend(*inputs, parse(text), FACTS, weights=weights), plain)


def test_xpos_in_float16_stays_finite():
    facts = Facts(trained_len=512, head_dim=64)
    inputs = [x.half() for x in tensors(5000, facts, dtype=torch.float32)]
    assert "dense: the decay spans exp(12)" in explain(*inputs, parse("xpos"), facts)
    short = [x[:, :, :2000] for x in inputs]
    assert "flash" in explain(*short, parse("xpos"), facts)
    assert attend(*short, parse("xpos"), facts).isfinite().all()


def test_a_constant_in_a_bias_costs_no_precision():
    weights = {"t5": {"table": torch.randn(32, 4, generator=torch.Generator().manual_seed(3)).double()}}
    raised = {"t5": {"table": weights["t5"]["table"] + 20}}
    inputs = tensors(200, dtype=torch.bfloat16)
    low, high = (attend(*inputs, parse("t5"), FACTS, weights=numbers) for numbers in (weights, raised))
    torch.testing.assert_close(low, high, rtol=0, atol=1e-2)


def test_the_gradient_of_a_wide_band_needs_no_square(monkeypatch):
    """Blocks of a band share keys; their gradients are never all in memory at once."""

    sizes, original = [], fused.backward
    noted = lambda *arguments, **named: sizes.append(arguments[2].numel()) or original(*arguments, **named)  # noqa: E731
    monkeypatch.setattr(fused, "backward", noted)
    facts = Facts(trained_len=8192, head_dim=8)
    inputs = [x.requires_grad_() for x in tensors(4096, facts, dtype=torch.float32)]
    attend(*inputs, parse("window:window=2000"), facts).sum().backward()
    assert max(sizes) <= 8 * 8192


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", ["dynamic_yarn:steps=nothing", "dynamic_ntk:steps=nothing+rerope:window=5+biases.fire"]
)
def test_a_table_for_every_row(text, monkeypatch):
    """Beyond the trained length; and no row is multiplied by more keys than it sees."""

    products, original = [], fused.forward

    def noted(q, k, *arguments, **named):
        products.append(q.shape[-2] * k.shape[-2])
        return original(q, k, *arguments, **named)

    monkeypatch.setattr(fused, "forward", noted)
    for queries in (110, 30, 1):
        assert_equal(parse(text), tensors(110, batch=2, queries=queries))
    if "fire" not in text:
        products.clear()
        attend(*tensors(110), parse(text), FACTS)
        assert sum(products) == 32 * 32 + sum(range(33, 111))


@pytest.mark.parametrize("length", [8, 30])  # with few tables, and with many
@pytest.mark.parametrize("text", ["dynamic_ntk", "dynamic_yarn+window:window=4"])
def test_a_first_stage_without_rotation(text, length):
    """With a trained length of 1, only the first row keeps its table and position 0; all others are rotated."""
    facts = replace(FACTS, trained_len=1)
    assert_equal(parse(text), tensors(length, facts), facts)


def test_an_empty_batch_gives_an_empty_answer():
    inputs = tensors(5, batch=0)
    assert attend(*inputs, Extension(), FACTS).shape == (0, 4, 5, 16)
    assert reference_attention(*inputs, Extension(), FACTS).shape == (0, 4, 5, 16)


@pytest.mark.parametrize("text", ["rope", "rerope:window=5", "biases.t5", "kerple"])
@pytest.mark.parametrize(
    ("batch", "queries", "positions"),
    [
        (1, 5, [[PAD] * 5]),
        (2, 5, [[PAD] * 5] * 2),
        (1, 2, [[0, 1, 2, PAD, PAD]]),
        (2, 5, [[PAD] * 5, [0, 1, 2, 3, 4]]),
        (0, 5, torch.zeros(0, 5).tolist()),
        (1, 2, [[3, 4, 5, 6, 7]]),
    ],
)
def test_queries_that_see_nothing_give_zeros_with_gradients_of_zero(text, batch, queries, positions):
    """Padding alone, no row or no query: a training goes on, as with any other batch."""
    extension = parse(text)
    q, k, v = (x.requires_grad_() for x in tensors(5, batch=batch, queries=queries))
    weights = learned(extension)
    leaves = [q, k, v, *(value.requires_grad_() for group in weights.values() for value in group.values())]
    numbers = torch.tensor(positions).view(batch, 5).long()
    out = attend(q, k, v, extension, FACTS, Tokens(numbers), weights=weights)
    padded = numbers[:, 5 - queries :] == PAD
    assert not out.transpose(1, 2)[padded].any()
    for leaf, slope in zip(leaves, torch.autograd.grad(out.sum(), leaves), strict=True):
        assert slope.shape == leaf.shape
        assert slope.isfinite().all()
        assert padded.numel() > padded.sum() or not slope.any()


def test_learned_numbers_receive_their_gradients():
    extension = parse("biases.t5+biases.fire+biases.gau_rotary+scales.head_scale")
    slopes = []
    for way in (attend, reference_attention):
        weights = learned(extension)
        leaves = [value.requires_grad_() for group in weights.values() for value in group.values()]
        way(*tensors(140), extension, FACTS, weights=weights).square().sum().backward()
        slopes.append([leaf.grad for leaf in leaves])
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_uninitialised_memory_is_never_read(monkeypatch):
    """torch.empty returns NaN, so that reading it shows."""

    def poisoned(*size, **kwargs):
        made = torch.zeros(*size, **kwargs)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)
    monkeypatch.setattr(torch, "empty_like", lambda x, **kwargs: poisoned(x.shape, dtype=kwargs.get("dtype", x.dtype)))
    for text in ("rerope:window=5", "streaming:window=6,n_sink=2", "alibi", "dynamic_yarn"):
        assert_equal(parse(text), tensors(70))


def test_the_same_inputs_give_the_same_bits():
    for extension in EVERY:
        inputs = tensors(60, batch=2, dtype=torch.float32)
        one, other = (attend(*inputs, extension, FACTS, weights=learned(extension)) for _ in range(2))
        assert torch.equal(one, other)


def test_rows_within_the_trained_length_are_the_plain_ones_bit_for_bit():
    inputs = tensors(90, dtype=torch.float32)
    plain = attend(*inputs, Extension(), FACTS)
    for text in ("dynamic_yarn", "dynamic_ntk", "log_n"):
        short = [x[:, :, :32] for x in inputs]
        assert torch.equal(attend(*short, parse(text), FACTS), attend(*short, Extension(), FACTS))
        torch.testing.assert_close(attend(*inputs, parse(text), FACTS)[:, :, :32], plain[:, :, :32], rtol=0, atol=2e-6)


def test_xpos_over_a_long_text_works_in_float64_or_says_no():
    facts = Facts(trained_len=512, head_dim=8)
    far = torch.arange(9)[None] * 6000
    inputs = tensors(9, facts, dtype=torch.float32)
    assert "dense: the decay spans exp(" in explain(*inputs, parse("xpos"), facts, Tokens(far))
    assert_equal(parse("xpos"), inputs, facts, tokens=Tokens(far))
    with pytest.raises(DoesNotFit, match="xpos grows beyond float64"):
        attend(*inputs, parse("xpos"), facts, Tokens(far * 100))


def test_explain_names_the_backend_and_the_reason():
    inputs = tensors(100, batch=2)
    assert explain(*inputs, parse("rerope:window=20"), FACTS) == (
        "2 rows, 100 queries, 100 keys: flash: 3 tiles by fused kernels, 5,050 query-key pairs"
    )
    for text, expected in {
        "alibi": "bias_diagonals: the mask of the fused kernels is read from a line of numbers (alibi); far keys "
        "are left out where the norms prove that they weigh less than 2^-56 in all",
        "fire": "dense: the bias depends on more than the distance (fire)",
        "biases.alibi+rerope:window=20": "dense: the reach gives the bias effective distances that "
        "differ from the true ones (alibi)",
    }.items():
        assert expected in explain(*inputs, parse(text), FACTS, weights=learned(parse(text)))
    wanting = {"t5": {"table": learned(parse("t5"))["t5"]["table"].requires_grad_()}}
    learning = explain(*inputs, parse("t5"), FACTS, weights=wanting)
    assert "(t5); its gradient is summed along the diagonals" in learning
    drawn = (
        parse("randomized:limit=1000")
        .positions_or_sequential.number(100, torch.Generator().manual_seed(0))
        .repeat(2, 1)
    )
    every_row = explain(*inputs, parse("dynamic_ntk:steps=nothing"), FACTS)
    assert "69 tables, one at a time, the last one by flash: 1 tile by fused kernels, 100 query-key pairs" in every_row
    scattered = explain(*inputs, parse("window:window=30"), FACTS, Tokens(drawn))
    assert "dense: positions scatter the spans into" in scattered
    padded = torch.arange(100).repeat(2, 1)
    padded[1] = torch.cat([torch.full((30,), PAD), torch.arange(70)])
    assert len(explain(*inputs, Extension(), FACTS, Tokens(padded)).splitlines()) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q, k.float(), v), "k must be of q's type and device"),
        (lambda q, k, v: (q.long(), k.long(), v.long()), "q must be of floating-point numbers"),
        (lambda q, k, v: (q, k, v.to("meta")), "v must be of q's type and device"),
        (lambda q, k, v: (q[:, :3], k, v), "q must be"),
        (lambda q, k, v: (q[0], k, v), r"q must be \[batch, heads, tokens, head_dim\]"),
        (lambda q, k, v: (q, k[:, :, :50], v), "q must be"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(change, message):
    with pytest.raises(InvalidValue, match=message):
        attend(*change(*tensors(60)), Extension(), FACTS)


def test_positions_that_run_backwards_are_refused():
    with pytest.raises(InvalidValue, match="positions_bj must be ascending"):
        attend(*tensors(5), Extension(), FACTS, Tokens(torch.tensor([[0, 2, 1, 3, 4]])))
