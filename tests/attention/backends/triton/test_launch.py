"""The triton kernels against the oracle: on a GPU where there is one, in triton's interpreter where there is none."""

import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ropewalk import Extension, Facts, parse, reference_attention
from ropewalk.attention import attend, dispatch, explain
from ropewalk.attention.backends.choose import Choice
from ropewalk.attention.backends.triton import launch as launch_module
from ropewalk.attention.backends.triton.launch import Launch, Launches, why_not
from ropewalk.attention.layout.segments import segments_of
from ropewalk.attention.layout.shared import SharedLayout, sharing
from ropewalk.attention.problem import Problem
from ropewalk.extension.inputs import PAD

pytest.importorskip("triton")

from attention.interpreter import mend
from attention.test_attend import CLOSE, SINGLE, learned, tensors

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TRITON = Choice(launch_module.TRITON, "chosen by a test")
# Two heads of one key head; the text outgrows the trained length, and its last block of 16 rows is not full.
FACTS = Facts(trained_len=16, head_dim=16, heads=2, kv_heads=1)
ALONE = Facts(trained_len=16, head_dim=16)
MIXED = [
    "dynamic_yarn+biases.alibi+rerope:window=5+log_n",
    "alibi+streaming:window=6,n_sink=2+scales.head_scale",
    "biases.kerple_log+biases.sandwich+window:window=9+xpos",
    "biases.t5+dual_chunk:chunk=8,local=3",
    "yarn:factor=2+string:shift=6,local=2+log_n",
]


def named(extension):
    return "+".join(str(spec) for group in extension.specs.values() for spec in group)


@pytest.fixture
def small(monkeypatch):
    """In the interpreter, small blocks make several tiles of a short sequence."""
    if DEVICE == "cpu":
        mend(monkeypatch)
        monkeypatch.setattr(launch_module, "launches", lambda *arguments: Launches(*[Launch(16, 16, 4, 1)] * 3))


@pytest.fixture
def by_triton(monkeypatch, small):
    """`attend` uses this backend on every device."""
    monkeypatch.setattr(dispatch, "choose", lambda problem: TRITON)


def on(device, weights):
    return {name: {key: value.to(device) for key, value in group.items()} for name, group in weights.items()}


def short(length=18, facts=FACTS, dtype=torch.float32, **kwargs):
    return tensors(length, facts, dtype=dtype, **kwargs)


def close(one, other, dtype=torch.float32):
    one, other = (x.detach().cpu().double() for x in (one, other))
    error = (one - other).abs().max()
    assert error <= CLOSE[dtype] * max(1.0, float(other.abs().max())), float(error)


def assert_equal(extension, tensors, facts=FACTS, **kwargs):
    """Outputs and gradients of queries, keys and values, against the oracle on the same numbers."""
    fast = [x.detach().to(DEVICE).requires_grad_() for x in tensors]
    slow = [x.detach().clone().requires_grad_() for x in tensors]
    weights = learned(extension, facts)
    got = attend(*fast, extension, facts, weights=on(DEVICE, weights), **kwargs)
    expected = reference_attention(*slow, extension, facts, weights=weights, **kwargs)
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    got.backward(slope.to(got))
    expected.backward(slope)
    assert got.dtype == tensors[0].dtype
    close(got, expected, got.dtype)
    for one, other in zip(fast, slow, strict=True):
        close(one.grad, other.grad, got.dtype)


@pytest.mark.sampled(cases=10)
@pytest.mark.parametrize("extension", SINGLE, ids=named)
def test_equals_the_oracle(by_triton, extension):
    if not all(spec.of_distance_alone for spec in extension.biases):
        assert refused(extension)
    elif extension.biases or extension.scales:
        assert_equal(extension, short())
    else:
        assert_equal(extension, short(33 if extension.reach else 18, ALONE), ALONE)


@pytest.mark.parametrize("text", ["rerope:window=5", "alibi", "biases.t5+window:window=9"])
def test_sinks(by_triton, text):
    """They are merged with the kernel's output, and learn."""
    facts, extension = dataclasses.replace(FACTS, sinks=True), parse(text)
    assert_equal(extension, short(facts=facts), facts)
    slopes = []
    for way, device in ((attend, DEVICE), (reference_attention, "cpu")):
        weights = on(device, learned(extension, facts))
        leaf = weights["model"]["sinks"].requires_grad_()
        way(*(x.to(device) for x in short(facts=facts)), extension, facts, weights=weights).square().sum().backward()
        slopes.append(leaf.grad)
    close(*slopes)


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("text", MIXED)
def test_all_at_once(by_triton, text):
    assert_equal(parse(text), short(20 if "dynamic" in text else 33))


@pytest.mark.parametrize("length", [1, 63])
def test_odd_lengths(by_triton, length):
    assert_equal(parse("biases.alibi+window:window=20"), short(length))


def test_many_tiles(by_triton):
    facts = Facts(trained_len=64, head_dim=16)
    assert_equal(parse("rerope:window=40"), short(101, facts), facts)


def test_half_precision(by_triton):
    assert_equal(parse("biases.alibi+rerope:window=5+log_n"), short(dtype=torch.bfloat16))


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(("groups", "head_dim"), [(1, 64), (2, 128), (4, 8), (8, 24)])
def test_grouped_heads_of_every_size(by_triton, groups, head_dim):
    facts = Facts(trained_len=16, head_dim=head_dim, heads=8, kv_heads=groups)
    assert_equal(Extension(), short(9, facts), facts)


def among_nan(x_bhnd):
    """The same vectors, with NaN between each and the next."""
    wider = torch.full((*x_bhnd.shape[:-1], 2 * x_bhnd.shape[-1]), torch.nan, dtype=x_bhnd.dtype)
    wider[..., : x_bhnd.shape[-1]] = x_bhnd
    return wider[..., : x_bhnd.shape[-1]]


@pytest.mark.parametrize("size", [6, 24])
def test_what_fills_vectors_up_is_not_what_lies_behind_them(by_triton, size):
    """Halves of 3 and of 12 numbers, in tiles of 4 and of 16; in a longer sequence also away from its end."""
    facts = Facts(trained_len=16, head_dim=size)
    q, k, v = short(40, facts)
    assert_equal(Extension(), [among_nan(x) for x in (q, k, v[..., : size - 1])], facts)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(("interleaved", "rotary_dim"), [(True, None), (True, 6), (False, 6)])
def test_layouts_of_pairs(by_triton, interleaved, rotary_dim):
    facts = dataclasses.replace(FACTS, interleaved=interleaved, rotary_dim=rotary_dim)
    for text in ("xpos", "yarn:factor=4", "dynamic_yarn+log_n"):
        assert_equal(parse(text), short(facts=facts), facts)


def test_padding_packing_and_strides(by_triton):
    """Rows of unequal length in a batch, in transformers' layout and one with gaps inside vectors."""
    positions = torch.tensor([[*range(18)], [PAD] * 5 + [*range(13)]])
    turned_about = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in short(batch=2)]
    assert_equal(parse("rerope:window=5"), turned_about, positions_bj=positions)
    documents = torch.tensor([[0] * 8 + [1] * 10])
    apart = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in short()]
    assert_equal(parse("biases.alibi"), apart, documents_bj=documents)


@pytest.mark.parametrize("queries", [1, 7])
def test_some_queries_of_many_keys_and_values_of_another_size(by_triton, queries):
    q, k, v = short(33, batch=2, queries=queries)
    assert_equal(parse("biases.t5+rerope:window=5"), [q, k, v[..., :6]])


@pytest.mark.parametrize("first", [2**30, 2**33 - 5])
def test_far_positions_cost_no_precision(by_triton, first):
    """Sines of float32 angles would be noise; the positions overflow 32 bits, their differences do not."""
    positions = first + torch.arange(18)[None]
    assert_equal(parse("biases.alibi+rope"), short(), positions_bj=positions)


def test_uninitialised_memory_is_never_read(by_triton, monkeypatch):
    def poisoned(*size, **kwargs):
        made = torch.zeros(*size, **kwargs)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", poisoned)
    monkeypatch.setattr(torch, "empty_like", lambda x, **kwargs: poisoned(x.shape, dtype=kwargs.get("dtype", x.dtype)))
    assert_equal(parse("streaming:window=6,n_sink=2+log_n"), short())


def test_an_empty_batch_gives_an_empty_answer(by_triton):
    assert attend(*short(batch=0), Extension(), FACTS).shape == (0, 2, 18, 16)


def test_the_same_inputs_give_the_same_bits(by_triton):
    inputs = [x.to(DEVICE).requires_grad_() for x in short()]
    slopes = []
    for _ in range(2):
        answer = attend(*inputs, parse("rerope:window=5"), FACTS)
        slopes.append([answer, *torch.autograd.grad(answer.sum(), inputs)])
    assert all(torch.equal(one, other) for one, other in zip(*slopes, strict=True))


def test_learned_scales_receive_their_gradients(by_triton):
    extension = parse("scales.head_scale+log_n+yarn:factor=4")
    slopes = []
    for way, device in ((attend, DEVICE), (reference_attention, "cpu")):
        weights = on(device, learned(extension, FACTS))
        (leaf,) = (value.requires_grad_() for value in weights["head_scale"].values())
        way(*(x.to(device) for x in short()), extension, FACTS, weights=weights).square().sum().backward()
        slopes.append(leaf.grad)
    close(*slopes)


def test_a_row_that_sees_nothing_gives_zeros_and_takes_no_part(small):
    """No reach has such rows; the kernels carry them anyway."""
    segments = segments_of(parse("rerope:window=5"), FACTS, torch.arange(18), [torch.arange(18)] * 2)
    blind = torch.tensor([0, 7, 17])
    hidden = []
    for segment in segments:
        rows = torch.isin(torch.arange(18)[segment.rows], blind)
        hidden.append(segment._replace(stop=segment.stop.where(~rows, segment.start)))
    inputs = [x.to(DEVICE).requires_grad_() for x in short()]
    one = torch.ones(1, 18, dtype=torch.float64)
    plans = [launch_module.plan_for(variant, inputs[0], inputs[2], False) for variant in (segments, hidden)]
    whole, part = (launch_module.triton_attention(*inputs, plan, one, None) for plan in plans)
    seeing = ~torch.isin(torch.arange(18), blind)
    assert (part[:, :, blind] == 0).all()
    assert torch.equal(part[:, :, seeing], whole[:, :, seeing])
    slope = torch.randn_like(whole) * seeing.to(DEVICE)[:, None]
    of_whole, of_part = (torch.autograd.grad(answer, inputs, slope) for answer in (whole, part))
    for got, expected in zip(of_part, of_whole, strict=True):
        close(got, expected)


def test_a_batch_larger_than_a_grid_is_launched_in_parts(by_triton, monkeypatch):
    """The second and third axis of a CUDA grid end at 65,535, and a row of a batch is an index of the third."""
    assert launch_module.MOST_ROWS == 2**16 - 1
    original, batches = launch_module._launch, []
    monkeypatch.setattr(launch_module, "MOST_ROWS", 2)
    monkeypatch.setattr(launch_module, "_launch", lambda *a: batches.append(len(a[4].q_bhid)) or original(*a))
    assert_equal(parse("biases.alibi+window:window=5"), short(batch=5))
    assert set(batches) == {2, 1}


def test_tables_of_more_numbers_than_32_bits_count(small):
    """As those of many segments together: the rows that are read begin after 2^31 numbers, none of which is touched."""
    extension, inputs, one = parse("rope"), [x.to(DEVICE) for x in short()], torch.ones(1, 18)
    segments = segments_of(extension, FACTS, torch.arange(18), [torch.arange(18)])
    plan = launch_module.plan_for(segments, inputs[0], inputs[2], False)
    before = 2**31 // plan.spans.q_rotations.shape[1]
    far = {}
    for name in ("q", "k"):
        table = getattr(plan.spans, f"{name}_rotations")
        far[f"{name}_rotations"] = torch.empty(before + len(table), table.shape[1], device=DEVICE)
        far[f"{name}_rotations"][before:] = table
        far[f"{name}_first"] = getattr(plan.spans, f"{name}_first") + before
    expected = launch_module.triton_attention(*inputs, plan, one, None)
    got = launch_module.triton_attention(*inputs, plan._replace(spans=plan.spans._replace(**far)), one, None)
    assert torch.equal(got, expected)


def test_layers_share_a_plan_and_other_positions_do_not(by_triton, monkeypatch):
    """Within a pass tables and tile ranges are worked out once; outside of one nothing is kept."""
    original, plans = launch_module.plan_for, []
    monkeypatch.setattr(launch_module, "plan_for", lambda *a: plans.append(original(*a)) or plans[-1])
    extension, inputs = parse("rerope:window=5"), [x.to(DEVICE) for x in short()]
    expected = reference_attention(*short(), extension, FACTS)
    with sharing(SharedLayout()):
        for _ in range(3):
            close(attend(*inputs, extension, FACTS), expected)
        assert len(plans) == 1
        assert len(plans[0].ranges) == 1
        later = torch.arange(18)[None] * 2
        close(
            attend(*inputs, extension, FACTS, positions_bj=later),
            reference_attention(*short(), extension, FACTS, positions_bj=later),
        )
        assert len(plans) == 2
    attend(*inputs, extension, FACTS)
    assert len(plans) == 3


def test_the_order_of_segments_does_not_matter(small):
    """Tables are as long as the segment that sees furthest needs, in any order."""
    segments = segments_of(parse("dual_chunk:chunk=8,local=3"), FACTS, torch.arange(33), [torch.arange(33)] * 3)
    inputs, one = [x.to(DEVICE) for x in short(33)], torch.ones(1, 33)
    plans = [launch_module.plan_for(variant, inputs[0], inputs[2], False) for variant in (segments, segments[::-1])]
    close(*(launch_module.triton_attention(*inputs, plan, one, None) for plan in plans))


def test_gradients_that_are_added_up_are_added_in_float32(by_triton, monkeypatch):
    original, sums = launch_module._sums, []
    monkeypatch.setattr(launch_module, "_sums", lambda *arguments: sums.append(original(*arguments)) or sums[-1])
    inputs = [x.to(DEVICE).requires_grad_() for x in short(dtype=torch.bfloat16)]
    attend(*inputs, parse("rerope:window=5"), FACTS).sum().backward()
    assert {x.dtype for x in sums} == {torch.float32}
    assert {x.grad.dtype for x in inputs} == {torch.bfloat16}


def refused(extension, facts=FACTS, learning=False, length=18, dtype=torch.float32, numbers=None, one_key_set=True):
    """Why the kernels do not carry a problem."""
    extension = parse(extension) if isinstance(extension, str) else extension
    numbers = torch.arange(length) if numbers is None else numbers
    segments = segments_of(extension, facts, numbers, [numbers] * len(extension.spans.spans()))
    sizes = (len(numbers), len(numbers), facts.head_dim, facts.head_dim)
    why = why_not(
        Problem(extension, segments, *sizes, dtype, torch.device("cuda"), learning, one_key_set, facts.softcap)
    )
    return why and why.removeprefix("triton: ")


def test_what_is_carried_is_not_refused():
    for text in ("rerope:window=5", "dynamic_yarn+biases.alibi", "leaky_rerope:window=5,leak=4", "xpos", "log_n"):
        assert refused(text) is None


def test_what_is_not_carried_is_named(monkeypatch):
    large = dataclasses.replace(FACTS, head_dim=256)
    fractional = "effective distances are not whole numbers (alibi)"
    assert refused("fire") == "the bias depends on more than the distance (fire)"
    assert refused("t5", learning=True) == "the learned bias needs a gradient (t5)"
    assert refused("biases.alibi+leaky_rerope:window=5,leak=4") == fractional
    assert refused("rope", large) == "heads of 256 are beyond 128"
    capped = dataclasses.replace(FACTS, softcap=50.0)
    assert refused("rope", capped) == "its kernel has no cap on logits (softcap 50)"
    assert refused("rope", dtype=torch.float64) == "it does not compute in float64"
    assert (
        refused("frequencies.dynamic:inner=(ntk:factor=1),steps=nothing", length=90)
        == "75 tables and spans are beyond 64"
    )
    assert refused("xpos", numbers=torch.arange(18) * 9000) == "the decay grows beyond float32"
    far = "effective distances exceed 1,048,576 (alibi)"
    assert refused("biases.alibi", numbers=torch.arange(18) * 70_000) == far
    assert refused("rope", numbers=torch.arange(0)) == "no query sees a key"
    assert refused("rerope:window=5", one_key_set=False) == "the keys are rotated already"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refused("rope") == "triton is not installed"


def test_a_cpu_knows_nothing_of_it():
    for text in ("rope", "alibi", "fire"):
        inputs, extension = short(), parse(text)
        assert "triton" not in explain(*inputs, extension, FACTS, weights=learned(extension, FACTS))


@pytest.mark.nightly
def test_the_kernels_compile_for_a_gpu(tmp_path):
    """The interpreter accepts more than the compiler. Compiling needs no GPU."""
    environment = {"PATH": "", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[4])}
    code = Path(__file__).with_name("compiled.py")
    sizes = subprocess.check_output([sys.executable, code], text=True, env=environment)
    assert [line.split()[0] for line in sizes.splitlines()] == ["forward", "backward_queries", "backward_keys"]
    assert all(0 < int(line.split()[1]) <= 99 * 1024 for line in sizes.splitlines())
