"""Every backend by itself against `reference_attention` in float64, in outputs and gradients, on a GPU or a CPU.

`attend` takes the first backend that supports a problem, so on a GPU the others would hardly be tested. On a CPU
FlexAttention runs by its definition; `make gpu` runs the same tests on a GPU, in larger sizes.
"""

import dataclasses
import importlib

import pytest
import torch

from ropewalk import Facts, Tokens, parse, reference_attention
from ropewalk.attention import CacheState, attend, cache_for
from ropewalk.attention.backends import flex
from ropewalk.attention.backends.choose import Choice
from ropewalk.attention.backends.dense import DENSE
from ropewalk.attention.backends.flash import FLASH
from ropewalk.extension.inputs import PAD

from attention.backends.flex_by_definition import defined

dispatch = importlib.import_module("ropewalk.attention.dispatch")
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
LENGTH = 700 if CUDA else 20
WIDTH = 150 if CUDA else 5  # of windows
HEADS = (64, 128) if CUDA else (16,)
BACKENDS = {backend.name: backend for backend in (FLASH, flex.FLEX, DENSE)}
CLOSE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}  # relative to the largest number
DTYPES = tuple(CLOSE) if CUDA else (torch.float32, torch.bfloat16)
TEXTS = (
    "rope",
    f"rerope:window={WIDTH}",
    f"window:window={WIDTH}",
    f"streaming:window={WIDTH},n_sink=3",
    f"self_extend:window={WIDTH},group=4",
    f"dynamic_yarn+rerope:window={WIDTH}+log_n",
    "alibi",
    f"biases.kerple_log+window:window={WIDTH}",
)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from within torch's compiler


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch):
    """`attend` computes every problem by this backend."""
    chosen = BACKENDS[request.param]
    monkeypatch.setattr(dispatch, "choose", lambda problem: Choice(_supporting(chosen, problem), "chosen by a test"))
    if not CUDA and chosen is flex.FLEX:
        monkeypatch.setattr(flex, "flex_attention", defined)
        monkeypatch.setattr(flex, "compile_call", lambda: flex.call)
    return chosen


def _supporting(backend, problem):
    """The backend, as if it were on a GPU where it is made for one; the test is skipped where it refuses."""
    asked = problem if CUDA or backend in (FLASH, DENSE) else problem._replace(device=torch.device("cuda"))
    why = backend.why_not(asked)
    if why:
        pytest.skip(why)
    return backend


def facts_of(head_dim, **others):
    heads = {"heads": 8, "kv_heads": 2} if CUDA else {"heads": 2, "kv_heads": 1}
    return Facts(trained_len=LENGTH // 2, head_dim=head_dim, **heads, **others)


def drawn(facts, dtype, *, queries=LENGTH, batch=1, keys=LENGTH):
    rng = torch.Generator().manual_seed(len(str(facts)) + queries)
    sizes = [(facts.heads, queries), (facts.groups, keys), (facts.groups, keys)]
    return [torch.randn(batch, heads, n, facts.head_dim, generator=rng).to(dtype) for heads, n in sizes]


def answered(way, extension, facts, inputs, device, dtype, **placed):
    """The output and the gradients of the vectors; in any precision from the same numbers."""
    vectors = [x.detach().to(device, dtype).requires_grad_() for x in inputs]
    initial = extension.weights(facts, torch.Generator().manual_seed(7))
    weights = {name: {key: value.to(device) for key, value in group.items()} for name, group in initial.items()}
    out = way(*vectors, extension, facts, weights=weights, **placed)
    slope = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(inputs[0].dtype)
    return [out, *torch.autograd.grad(out, vectors, slope.to(device, out.dtype))]


def assert_right(text, facts, inputs, **placed):
    extension, dtype = parse(text), inputs[0].dtype
    ours = answered(attend, extension, facts, inputs, DEVICE, dtype, **placed)
    theirs = answered(reference_attention, extension, facts, inputs, "cpu", torch.float64, **placed)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, dtype)


def assert_close(one, other, dtype):
    one, other = one.detach().double().cpu(), other.detach().double()
    error = (one - other).abs().max()
    assert error <= CLOSE[dtype] * max(1.0, float(other.abs().max())), float(error)  # NaN is no smaller


@pytest.mark.sampled(cases=20)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("head_dim", HEADS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equals_the_definition(backend, text, head_dim, dtype):
    if dtype == torch.float32 and head_dim > 64:
        pytest.skip("in float32 one size is enough: its kernels take long to compile")
    facts = facts_of(head_dim)
    assert_right(text, facts, drawn(facts, dtype))


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("text", ["rope", f"rerope:window={WIDTH}", "alibi"])
def test_padding_on_either_side(backend, text):
    """Numbers of rows differ; what is padded gives zeros and takes no part."""
    facts, half = facts_of(HEADS[0]), LENGTH // 2
    positions = torch.full((3, LENGTH), PAD)
    positions[0], positions[1, :half] = torch.arange(LENGTH), torch.arange(half)
    positions[2, half:] = torch.arange(LENGTH - half)
    assert_right(text, facts, drawn(facts, torch.float32, batch=3), tokens=Tokens(positions))


@pytest.mark.parametrize("text", ["rope", f"window:window={WIDTH}", "alibi"])
def test_packed_documents(backend, text):
    facts, documents = facts_of(HEADS[0]), (torch.arange(LENGTH) > LENGTH // 3).long()[None]
    assert_right(text, facts, drawn(facts, torch.float32), tokens=Tokens(documents_bj=documents))


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("text", [f"rerope:window={WIDTH}", f"window:window={WIDTH}", "alibi"])
@pytest.mark.parametrize("queries", [1, LENGTH // 3])
def test_the_last_queries_of_many_keys(backend, text, queries):
    facts = facts_of(HEADS[0])
    assert_right(text, facts, drawn(facts, torch.float32, queries=queries))


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize(("interleaved", "rotary_dim"), [(True, None), (False, 8), (True, 8)])
def test_layouts_of_pairs(backend, interleaved, rotary_dim):
    facts = facts_of(HEADS[0], interleaved=interleaved, rotary_dim=rotary_dim)
    for text in (f"rerope:window={WIDTH}", "yarn:factor=4"):
        assert_right(text, facts, drawn(facts, torch.float32))


def test_vectors_that_do_not_lie_as_kernels_like_them(backend):
    """A view into a larger tensor: no stride and no address is a multiple of 16 bytes."""
    facts = facts_of(HEADS[0])
    askew = [torch.nn.functional.pad(x, (1, 2))[..., 1:-2] for x in drawn(facts, torch.bfloat16)]
    assert_right(f"rerope:window={WIDTH}", facts, askew)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("text", TEXTS)
def test_read_through_a_cache(text, dtype):
    """In chunks and token by token, by whatever backend the chooser takes."""
    facts, extension, (q, k, v) = facts_of(HEADS[0]), parse(text), drawn(facts_of(HEADS[0]), dtype, batch=2)
    initial = extension.weights(facts, torch.Generator().manual_seed(7))
    on = {name: {key: value.to(DEVICE) for key, value in group.items()} for name, group in initial.items()}
    cache = cache_for(CacheState(extension, facts, weights=on))
    sizes = [LENGTH // 2, 1, 1, LENGTH // 4, 1]
    parts = zip(*(torch.split(x.to(DEVICE), [*sizes, LENGTH - sum(sizes)], 2) for x in (q, k, v)), strict=True)
    out = torch.cat([cache.read(*part) for part in parts], 2)
    wide = [x.double() for x in (q, k, v)]
    assert_close(out, reference_attention(*wide, extension, facts, weights=initial), dtype)


def test_sinks_of_the_model(backend):
    facts = facts_of(HEADS[0])
    facts = dataclasses.replace(facts, sinks=True)
    sinks = {"model": {"sinks": torch.randn(facts.heads, generator=torch.Generator().manual_seed(3))}}
    inputs, extension = drawn(facts, torch.float32), parse(f"rerope:window={WIDTH}")
    on = {"model": {"sinks": sinks["model"]["sinks"].to(DEVICE)}}
    ours = attend(*(x.to(DEVICE) for x in inputs), extension, facts, weights=on)
    theirs = reference_attention(*(x.double() for x in inputs), extension, facts, weights=sinks)
    assert_close(ours, theirs, torch.float32)
