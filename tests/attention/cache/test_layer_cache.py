"""Promise P2: a layer cache equals the definition over all keys so far, for chunks of any size; P3 and P6 too."""

import pytest
import torch

from ropewalk import Extension, Facts, InvalidValue, Tokens, parse, reference_attention
from ropewalk.attention import CacheState, cache_for
from ropewalk.attention.cache import buffers, layer_cache
from ropewalk.attention.rotation.rotate import Rotation, expand_rotation, rotate, rotate_few
from ropewalk.attention.torch_kernels import fused
from ropewalk.extension.inputs import PAD

from attention.cache.reading import CUTS, assert_reads, read
from attention.problems import EVERY, learned, tensors
from examples import FACTS

READ_ON = [extension for extension in EVERY if extension.positions_or_sequential.name == "sequential"]
every = pytest.mark.parametrize(
    "extension", READ_ON, ids=lambda tensor: "+".join(str(s) for g in tensor.specs.values() for s in g)
)


@pytest.mark.parametrize("cuts", [[200, *[1] * 200, 300, *[1] * 100], [700, 100], [1] * 800])
def test_a_wide_window_takes_room_as_the_text_grows(cuts, monkeypatch):
    """Past the first room that it has, past its window, and by one token or by many."""
    monkeypatch.setattr(buffers, "WIDE_RING", 500)
    wide = parse("sinks:window=600,n_sink=3,renumber=false")
    facts = Facts(trained_len=1000, head_dim=4, heads=2, kv_heads=1)
    assert_reads(wide, tensors(sum(cuts), facts), cuts, facts)
    _, short = read(wide, tensors(30, facts), [30], facts)
    _, long = read(wide, tensors(700, facts), [700], facts)
    assert short.nbytes < long.nbytes / 2


@pytest.mark.sampled(cases=34)
@every
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_equals_the_oracle_however_it_is_cut(extension, cuts):
    assert_reads(extension, tensors(60, batch=2), cuts)


@pytest.mark.sampled(cases=20)
@every
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_rows_padded_on_the_left(extension, cuts):
    assert_reads(extension, tensors(60, batch=3), cuts, begins=(0, -25, -7))


@pytest.mark.sampled(cases=24)
@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_in_the_models_precision(extension, dtype):
    assert_reads(extension, tensors(60, dtype=dtype), CUTS["a prompt, then tokens"])


BY_KERNEL = (
    "rope",
    "rerope:window=7",
    "streaming:window=6,n_sink=2",
    "self_extend:window=5,group=3",
    "dynamic_yarn+log_n",
)


@pytest.mark.sampled
@pytest.mark.parametrize("text", BY_KERNEL)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("sinks", [False, True])
def test_steps_by_the_fused_kernel_as_on_a_gpu(monkeypatch, text, groups, sinks):
    facts = Facts(trained_len=16, head_dim=16, heads=4, kv_heads=groups, sinks=sinks)
    calls, original = [], fused.forward
    monkeypatch.setattr(layer_cache, "KERNEL_DEVICES", ("cpu",))
    monkeypatch.setattr(fused, "forward", lambda q, *a, **b: calls.append(q.shape) or original(q, *a, **b))
    assert_reads(parse(text), tensors(60, facts, batch=2, dtype=torch.bfloat16), CUTS["a prompt, then tokens"], facts)
    assert calls.count((2, 4, 1, 16)) >= 37


@pytest.mark.parametrize(
    ("text", "dtype", "softcap", "widest"),
    [
        ("rope", torch.float32, None, 16),
        ("biases.alibi", torch.bfloat16, None, 16),
        ("rope", torch.bfloat16, 20.0, 16),
        ("rope", torch.bfloat16, None, 8),
    ],
)
def test_what_the_fused_kernel_cannot_do_is_two_products(monkeypatch, text, dtype, softcap, widest):
    facts = Facts(trained_len=16, head_dim=16, heads=4, kv_heads=2, softcap=softcap)
    monkeypatch.setattr(layer_cache, "KERNEL_DEVICES", ("cpu",))
    monkeypatch.setitem(fused.BY_DEVICE, "cpu", fused.BY_DEVICE["cpu"]._replace(largest_head=widest))
    monkeypatch.setattr(layer_cache.LayerCache, "_by_kernel", None)
    assert_reads(parse(text), tensors(60, facts, dtype=dtype), CUTS["token by token"], facts)


@pytest.mark.sampled
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize("text", ["rerope:window=7", "streaming:window=6,n_sink=2", "biases.alibi", "dynamic_ntk"])
def test_grouped_heads(groups, text):
    facts = Facts(trained_len=16, head_dim=16, heads=8, kv_heads=groups)
    assert_reads(parse(text), tensors(40, facts, batch=2), [9] + [1] * 31, facts)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_layouts_of_pairs(interleaved, rotary_dim):
    facts = Facts(trained_len=16, head_dim=8, heads=2, interleaved=interleaved, rotary_dim=rotary_dim)
    for text in (
        "self_extend:window=5,group=3",
        "streaming:window=6,n_sink=2",
        "xpos",
        "yarn:factor=4",
        "dynamic_yarn",
    ):
        assert_reads(parse(text), tensors(40, facts), [9] + [1] * 31, facts)


@every
def test_uninitialised_memory_is_never_read(extension, monkeypatch):
    """Newly allocated memory holds NaN, as it may."""
    blank = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *size: blank(self, *size).fill_(torch.nan))
    assert_reads(extension, tensors(60, batch=2), CUTS["pieces"], begins=(0, -7))


@pytest.mark.sampled(cases=17)
@every
def test_a_row_does_not_depend_on_its_batch_mates(extension):
    x = tensors(60, batch=3)
    together, _ = read(extension, x, CUTS["a prompt, then tokens"], begins=(0, -25, -7))
    for row, begin in enumerate((0, -25, -7)):
        alone, _ = read(extension, [tensor[row : row + 1] for tensor in x], CUTS["pieces"], begins=(begin,))
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("window:window=12", 12), ("streaming:window=10,n_sink=3", 10 + 3), ("lm_infinite:window=8", 8 + 10)],
)
def test_memory_stays_bounded_by_the_reach(text, kept):
    """Promise P6: as much memory after 1,000 tokens as after 100."""
    extension, facts = parse(text), Facts(trained_len=64, head_dim=8, heads=2)
    x = tensors(1000, facts)
    sizes = {
        read(extension, [tensor[:, :, :n] for tensor in x], [n - 3, 1, 1, 1], facts)[1].nbytes for n in (100, 1000)
    }
    assert sizes == {2 * 2 * kept * 8 * x[0].element_size()}


@pytest.mark.parametrize("begin", [2000, 2**22, 2**30])
def test_exact_far_out(begin):
    """Angles in float64: float32 ones are noise from about 100,000 on."""
    x = tensors(200, dtype=torch.float32)
    got, _ = read(parse("window:window=50"), x, [1] * 200, begins=(begin,))
    positions = torch.arange(begin, begin + 200)[None]
    expected = reference_attention(
        *(tensor.double() for tensor in x), parse("window:window=50"), FACTS, Tokens(positions)
    )
    assert float((got - expected).abs().max() / expected.abs().max()) < 1e-5


def test_the_rotation_of_a_token_is_that_of_all_tokens():
    x, angle = torch.randn(2, 3, 4, 10, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    turn = Rotation(angle.cos(), angle.sin())
    for interleaved in (False, True):
        once = rotate_few(x, expand_rotation(turn, interleaved), interleaved)
        torch.testing.assert_close(once, rotate(x, turn, interleaved), rtol=0, atol=1e-15)


def test_layers_share_a_session(monkeypatch):
    """How a token is computed is found once for all of them."""
    steps, original = [], layer_cache.LayerCache._token
    monkeypatch.setattr(layer_cache.LayerCache, "_token", lambda *given: steps.append(given[1]) or original(*given))
    extension = parse("streaming:window=6,n_sink=2")
    state, layers = CacheState(extension, FACTS), [tensors(40, seed=seed) for seed in (1, 2)]
    caches = [cache_for(state) for _ in layers]
    for t in range(40):
        for cache, x in zip(caches, layers, strict=True):
            got = cache.read(*(tensor[:, :, t : t + 1] for tensor in x))
            upto = [x[0][:, :, t : t + 1], *(tensor[:, :, : t + 1] for tensor in x[1:])]
            torch.testing.assert_close(got, reference_attention(*upto, extension, FACTS), rtol=0, atol=1e-11)
    assert len(steps) == 80
    assert all(first is second for first, second in zip(steps[::2], steps[1::2], strict=True))


@pytest.mark.sampled(cases=24)
@every
@pytest.mark.parametrize("begins", [(0,), (0, -25)], ids=["plain", "padded"])
def test_tokens_are_removed(extension, begins):
    """As if they had never been read: other tokens follow, one by one or together."""
    x, others = tensors(60, batch=2), tensors(60, batch=2, seed=5)
    state = CacheState(extension, FACTS, begins=begins, weights=learned(extension, FACTS), spare=6)
    cache, text = cache_for(state), [tensor[:, :, :0] for tensor in x]
    got = torch.zeros_like(x[0][:, :, :0])
    for size, kept in ((33, 30), (1, 1), (6, 0), (6, 1), (1, 1), (5, 5), (1, 0), (4, 2)):
        source, at = (x, others)[kept == size], text[1].shape[2]
        parts = [tensor[:, :, at : at + size] for tensor in source]
        answer = cache.read(*parts)[:, :, :kept]
        cache.forget(size - kept)
        got = torch.cat([got, answer], 2)
        text = [torch.cat([old, new[:, :, :kept]], 2) for old, new in zip(text, parts, strict=True)]
    assert cache.count == got.shape[2] == 40
    numbers = torch.stack([torch.arange(40) + begin for begin in begins]).clamp(min=PAD).expand(2, -1)
    kwargs = {"tokens": Tokens(numbers), "weights": learned(extension, FACTS)}
    torch.testing.assert_close(got, reference_attention(*text, extension, FACTS, **kwargs), rtol=0, atol=1e-11)


@pytest.mark.parametrize("spare", [0, 3])
def test_no_more_is_removed_than_there_is_room_for(spare):
    """Also in two steps, and after other tokens took their slots."""
    x, state = tensors(60), CacheState(parse("window:window=8"), FACTS, spare=spare)
    cache = cache_for(state)
    cache.read(*(tensor[:, :, :40] for tensor in x))
    for _ in range(spare):
        cache.forget(1)
    with pytest.raises(InvalidValue, match=f"at most {spare} once a window is full"):
        cache.forget(1)
    cache.read(*(tensor[:, :, cache.count : cache.count + 1] for tensor in x))
    assert cache.count == 41 - spare
    if spare:
        cache.forget(1)
    with pytest.raises(InvalidValue, match="larger spare"):
        cache.forget(1)
    fresh = cache_for(state)
    fresh.read(*(tensor[:, :, : 8 + spare] for tensor in x))
    fresh.forget(8 + spare)  # nothing was written over yet
    assert fresh.count == 0


def test_refusals():
    q, k, v = tensors(4, batch=2)
    with pytest.raises(InvalidValue, match="sequential"):
        CacheState(parse("positions.randomized:limit=64"), FACTS)
    cache = cache_for(CacheState(Extension(), FACTS, begins=(0, -1)))
    with pytest.raises(InvalidValue, match="cache's 2 rows"):
        cache.read(q[:1], k[:1], v[:1])
    with pytest.raises(InvalidValue, match="as many tokens"):
        cache.read(q[:, :, :2], k, v)
    cache.read(q, k, v)
    with pytest.raises(InvalidValue, match="cache's type"):
        cache.read(q.float(), k.float(), v.float())
    assert cache.count == 4
    with pytest.raises(InvalidValue, match="gradient"):
        cache.read(q.requires_grad_(), k, v)
    with torch.no_grad():  # what wants one elsewhere may be read all the same
        assert not cache.read(q, k, v).requires_grad


@pytest.mark.parametrize("tokens", [-1, 5])
def test_only_tokens_that_were_read_are_taken_back(tokens):
    cache = cache_for(CacheState(Extension(), FACTS))
    cache.read(*tensors(4))
    with pytest.raises(InvalidValue, match="tokens must be between 0 and the 4 that were read"):
        cache.forget(tokens)
    cache.forget(4)
    assert cache.count == 0
