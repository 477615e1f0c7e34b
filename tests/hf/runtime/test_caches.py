"""Promises P2 and P3 on models: every preset, every cache, every architecture; and what a cache cannot do is refused.

The answer without any cache is compared with the definition elsewhere (tests/attention); here it is what all cuts and
caches have to give.
"""

import functools

import pytest
import torch
from transformers import DynamicCache, QuantizedCache, StaticCache
from transformers.cache_utils import QuantizedLayer

from ropewalk import InvalidValue, extended, parse
from ropewalk.extension.parsing import PRESETS
from ropewalk.hf.runtime.caches import ExtendedCacheLayer
from ropewalk.hf.runtime.rounded_cache import RoundedCache, rounded

from hf.extended import CARRIED, IDS, MASK, PADDED, error, in_pieces
from hf.models import tiny
from hf.traces import logits

CLOSE = 1e-4  # of the largest logit: float32, sums in another order
ELSEWHERE = {"nbce", "parallel_windows", "gqa", "qk_bias", "stretched_positions"}  # rules of decoding, and surgery
LENGTHS = {"trained_len": 32, "target_len": 128, "layers": 4, "key_heads": 2}
GIVEN = {  # what the lengths do not say for so short a model
    "longrope": "longrope:factor=4",
    "streaming": "streaming:window=10,n_sink=2",
    "lm_infinite": "lm_infinite:window=10,n_sink=2",
    "duo_attention": "duo_attention:window=10,n_sink=2,retrieval=[1,4,6,7]",
}
HANDFUL = [
    *("rope", "yarn:factor=4", "dynamic_yarn", "rerope:window=8+log_n", "window:window=9"),
    *("dynamic_yarn+streaming:window=10,n_sink=2", "biases.alibi"),
    *("duo_attention:window=10,n_sink=2,retrieval=[0,3]+dynamic_yarn", "ms_poe+log_n"),
]
CUTS = [25, 1, 1, 20, 1, 1, 1, 10]
CACHES = {
    "dynamic, by layer": lambda config: DynamicCache(),
    "dynamic, by config": lambda config: DynamicCache(config=config),
    "static": lambda config: StaticCache(config, max_cache_len=80),
    "as it was given, unreplaced": lambda config: Unreplaced(config=config),
}


class Unreplaced(DynamicCache):
    """Not of the type whose place ours takes: transformers' own layers then hold keys as they came."""


@functools.cache
def model_of(name):
    return tiny(name)


def preset(name):
    return parse(GIVEN.get(name, name), **LENGTHS)


def assert_one_answer(model, extension, caches=CACHES):
    """One pass is what all pieces give, with padding and a mate, through every cache; and what the row gives alone.

    Where nobody numbers tokens transformers counts padding too, and Ministral 3 scales its queries by that count: its
    row is alone's where its tokens are numbered, as generate does.
    """
    with extended(model, extension):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        for cache in caches.values():
            assert error(in_pieces(model, CUTS, cache(model.config))[0], whole) < CLOSE
        alone = logits(model, IDS[:1, PADDED:], use_cache=False)
        assert torch.equal(alone, logits(model, IDS[:1, PADDED:], use_cache=False))
        if model.config.model_type == "ministral3":
            numbers = (MASK.cumsum(-1) - 1).clamp(min=0)
            whole = logits(model, IDS, attention_mask=MASK, position_ids=numbers, use_cache=False)
    assert float((whole[:1, PADDED:] - alone).abs().max() / alone.abs().max()) < CLOSE


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", sorted(set(PRESETS) - ELSEWHERE))
def test_every_preset_through_every_cache(name):
    assert_one_answer(model_of("llama"), preset(name))


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("text", HANDFUL)
@pytest.mark.parametrize("name", CARRIED)
def test_every_architecture_through_its_caches(name, text):
    """What generate makes, and a static one: sliding layers where the model has windows."""
    caches = {name: CACHES[name] for name in ("dynamic, by config", "static")}
    assert_one_answer(model_of(name), parse(text, **LENGTHS), caches)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["mistral", "gemma3_text", "cohere2"])
@pytest.mark.parametrize("kind", CACHES)
def test_windows_that_are_lifted(name, kind):
    """A cache made for the model's windows keeps too little: ours takes its place, or it is refused and not touched."""
    model = model_of(name)
    with extended(model, "rerope:window=8", lift_windows=True):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        cache = CACHES[kind](model.config)
        if kind in ("static", "as it was given, unreplaced"):
            with pytest.raises(InvalidValue, match="lifted windows"):
                in_pieces(model, CUTS, cache)
            assert cache.get_seq_length() == 0
        else:
            assert error(in_pieces(model, CUTS, cache)[0], whole) < CLOSE


def test_lifted_windows_within_the_models_own_fit_its_caches():
    model = model_of("mistral")
    with extended(model, "window:window=9", lift_windows=True):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        for make in CACHES.values():
            assert error(in_pieces(model, CUTS, make(model.config))[0], whole) < CLOSE


def test_lifted_windows_while_gradients_are_wanted():
    """No memory of ours then; and the cache that the pass makes for itself keeps everything."""
    model = model_of("mistral")
    with extended(model, "rerope:window=8", lift_windows=True):
        whole = model(input_ids=IDS, use_cache=False).logits[:, 40:]
        first = model(input_ids=IDS[:, :40])
        second = model(input_ids=IDS[:, 40:], past_key_values=first.past_key_values).logits
    torch.testing.assert_close(second, whole, rtol=0, atol=1e-3)


@pytest.mark.parametrize("make", [DynamicCache, functools.partial(StaticCache, max_cache_len=80)], ids=["", "static"])
def test_offloading_without_cuda_is_refused_before_anything_is_touched(make):
    model = model_of("llama")
    with extended(model, "rerope:window=8"):
        cache = make(config=model.config, offloading=True)
        with pytest.raises(InvalidValue, match="an offloading cache needs CUDA"):
            in_pieces(model, CUTS, cache)
        assert cache.get_seq_length() == 0


class Stream:
    """Stands in for a stream of CUDA, whose order a processor has anyway."""

    __enter__ = __exit__ = wait_stream = lambda *_: None


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("text", HANDFUL)
@pytest.mark.parametrize("make", [DynamicCache, functools.partial(StaticCache, max_cache_len=80)], ids=["", "static"])
def test_offloaded(text, make, monkeypatch):
    """transformers' own way, layers moved away after use and fetched before, with streams that do nothing."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: Stream())
    model, moved = model_of("llama"), []

    def noted(own):
        moved.append(own)
        own()

    with extended(model, parse(text, **LENGTHS)):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        cache = make(config=model.config, offloading=True)
        cache.prefetch_stream = Stream()
        for layer in cache.layers:
            monkeypatch.setattr(
                layer, "offload", functools.partial(lambda own: (moved.append(1), own()), layer.offload)
            )
        assert error(in_pieces(model, CUTS, cache)[0], whole) < CLOSE
    assert len(moved) == 4 * len(CUTS)
    assert not any(isinstance(layer, ExtendedCacheLayer) for layer in cache.layers)


class SixteenBits(QuantizedLayer):
    """Each head's dimension in 65,535 steps, as quanto and hqq do in groups and in fewer."""

    def _quantize(self, tensor, axis):
        scale = tensor.abs().amax(-2, keepdim=True).clamp(min=1e-9) / 32767
        return (tensor / scale).round().to(torch.int16), scale

    def _dequantize(self, kept):
        return kept[0] * kept[1]


def quantised(config, residual=8, layer=SixteenBits):
    cache = QuantizedCache("fp8", config)
    cache.layers = [layer(residual_length=residual) for _ in cache.layers]
    return cache


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("text", HANDFUL)
def test_quantised(text):
    """Keys are rounded as they came, before they are turned: as close as the bare model is with its own."""
    model = model_of("llama")
    bare = logits(model, IDS[:, :32], use_cache=False)
    own, _ = in_pieces(model, [20, *[1] * 12], quantised(model.config), mask=torch.ones_like(IDS))
    usual = float((own - bare).abs().max() / bare.abs().max())
    with extended(model, parse(text, **LENGTHS)):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        got = error(in_pieces(model, CUTS, quantised(model.config))[0], whole)
    assert CLOSE < usual < 1e-2
    assert usual / 10 < got < 3 * usual


class Exact(SixteenBits):
    """Keeps every number as it came, behind all that a quantised cache does with the newest ones and the order."""

    _quantize, _dequantize = (lambda _, tensor, axis: tensor), (lambda _, kept: kept)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", HANDFUL)
def test_quantised_without_an_error_is_exact(text):
    """However the newest tokens are kept apart; and after its rows were put into another order, as beams are."""
    model = model_of("llama")
    with extended(model, parse(text, **LENGTHS)):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        for residual in (1, 8, 30):
            assert error(in_pieces(model, CUTS, quantised(model.config, residual, Exact))[0], whole) < CLOSE
        swapped, last = torch.tensor([1, 0]), slice(50, None)
        _, cache = in_pieces(model, [50], quantised(model.config, 8, Exact), mask=torch.ones_like(IDS))
        cache.reorder_cache(swapped)
        with torch.no_grad():
            after = model(IDS[swapped, last], past_key_values=cache).logits
        alike = logits(model, IDS[swapped], use_cache=False)[:, last]
    assert float((after - alike).abs().max() / alike.abs().max()) < CLOSE


def test_quantised_beyond_what_was_rounded_is_exact():
    """What has not been rounded yet is as without a cache."""
    model = model_of("llama")
    with extended(model, "rerope:window=8"):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        first, cache = in_pieces(model, [25], quantised(model.config, residual=100))
        assert error(torch.cat([first, whole[:, 25:]], 1), whole) < CLOSE
        assert [layer.get_seq_length() for layer in cache.layers] == [25] * 4


def fp8_error(model, ids, mask):
    """Of the logits while generating with a cache in 8 bits, against the same text without a cache."""
    given = {"do_sample": False, "eos_token_id": None, "max_new_tokens": 12, "attention_mask": mask}
    cache = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    with torch.no_grad():
        written = model.generate(ids, **given, **cache, return_dict_in_generate=True, output_logits=True)
    assert not any(isinstance(layer, ExtendedCacheLayer) for layer in written.past_key_values.layers)
    mask = torch.nn.functional.pad(mask, (0, 12), value=1)
    whole = logits(model, written.sequences, attention_mask=mask, use_cache=False)[:, ids.shape[1] - 1 : -1]
    return float((torch.stack(written.logits, 1) - whole).square().mean().sqrt() / whole.square().mean().sqrt())


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("text", HANDFUL)
def test_generating_with_a_quantised_cache(text):
    """As fp8 has it; quanto's and hqq's differ in how they round, and were run by hand."""
    model = model_of("llama")
    usual = fp8_error(model, IDS[:, :20], MASK[:, :20])
    with extended(model, parse(text, **LENGTHS)):
        assert fp8_error(model, IDS, MASK) < 1.5 * usual
    assert 0.05 < usual < 0.5


class UnreplacedRounded(RoundedCache):
    """Not of the type whose place ours takes."""


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("text", HANDFUL)
@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_rounded(text, name):
    """Each number once: however a text is cut, in ours and in transformers' own layers.

    Where sums in another order move a number across the border of two steps, it is a whole step away.
    """
    model = model_of(name)
    with extended(model, parse(text, **LENGTHS)):
        exact = logits(model, IDS, attention_mask=MASK, use_cache=False)
        got, _ = in_pieces(model, CUTS, RoundedCache("int8", config=model.config))
        usual = error(got, exact)
        assert 1e-3 < usual < 0.3
        for kind in (UnreplacedRounded, RoundedCache):
            assert error(in_pieces(model, [25, 20, 15], kind("int8", config=model.config))[0], got) < usual / 3
        _, cache = in_pieces(model, [25], RoundedCache("fp8", config=model.config), mask=torch.ones_like(IDS))
        attends = model.config._attn_implementation == "ropewalk"
        assert attends == any(isinstance(layer, ExtendedCacheLayer) for layer in cache.layers)


def test_what_is_rounded_by_hand():
    """int4 has 16 levels in each group of 32 numbers, or of a smaller even part of a head; fp8 ends at 448."""
    levels = torch.arange(16.0).repeat(2)
    assert torch.equal(rounded(levels, "int4"), levels)
    mixed = torch.stack([levels, 100 * levels]).flatten()  # two groups, each with steps of its own
    assert torch.equal(rounded(mixed, "int4"), mixed)
    assert rounded(torch.tensor([0.0, 0.4, 0.6, 15.0]), "int4").tolist() == [0, 0, 1, 15]
    assert torch.equal(rounded(torch.full((2, 80), 3.25), "int8"), torch.full((2, 80), 3.25))
    x = torch.randn(1, 2, 5, 80, generator=torch.Generator().manual_seed(0))
    for kind, steps in {"int8": 255, "int4": 15}.items():
        groups, got = x.unflatten(-1, (4, 20)), rounded(x, kind)
        step = (groups.amax(-1) - groups.amin(-1)) / steps
        assert ((got.unflatten(-1, (4, 20)) - groups).abs().amax(-1) <= step / 2 * 1.001).all()
        assert rounded(x.bfloat16(), kind).dtype == torch.bfloat16
    assert rounded(torch.tensor([1.0, 1.06, 1.07, 1e4, -1e4]), "fp8").tolist() == [1, 1, 1.125, 448, -448]
    with pytest.raises(InvalidValue, match="rounding must be one of int8, int4, fp8"):
        RoundedCache("int3")


def test_a_memory_says_to_transformers_what_a_cache_would():
    """Tokens that were read, and the keys of a mask for more of them; forgotten ones among them."""
    model, cache = tiny("llama", num_hidden_layers=1), DynamicCache()
    plain = DynamicCache()
    for count in (25, 1, 14):
        model(IDS[:, plain.get_seq_length() :][:, :count], past_key_values=plain)
        with extended(model, "streaming:window=10,n_sink=2"), torch.no_grad():
            model(IDS[:, cache.get_seq_length() :][:, :count], past_key_values=cache)
        assert isinstance(cache.layers[0], ExtendedCacheLayer)
        assert cache.get_seq_length() == plain.get_seq_length()
        for queries in (1, 7):
            assert cache.get_mask_sizes(queries, 0) == plain.get_mask_sizes(queries, 0)
