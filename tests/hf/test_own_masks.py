"""Layers that make a mask of their own, or choose their keys: sparse indexers and dynamic masks.

Models are in float64: in float32 rounding decides which of two nearly equal keys is chosen.
"""

import functools
import itertools
from contextlib import contextmanager

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import Conflict, DoesNotFit, Extension, extend, extended, inspect, load, save, score
from ropewalk.hf.attach.attention import capture_layers
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.runtime import hooks as kept_rotation
from ropewalk.hf.runtime.caches import ExtendedCacheLayer, held_bytes

from hf.architectures import small
from hf.models import tiny
from hf.traces import logits, off, trace

pytestmark = pytest.mark.nightly

INDEXED = ["deepseek_v32", "glm_moe_dsa", "axk2", "hy_v4", "dots3_note_text", "qwen4_exp_text"]
EVERY = [*INDEXED, "doge"]
# Every token once: equal keys have equal scores, and which of them is chosen is nobody's choice.
IDS = torch.randperm(101, generator=torch.Generator().manual_seed(4))[None, :100]
CUTS = (30, 40, 1, 1, 27, 1)  # the first chunk is shorter than the 40 keys that a query chooses
CLOSE = 5e-5  # of the largest logit: norms and scores of keys are float32 in float64 models too
BASE = "nothing"
LINES = ["rerope:window=16", "dynamic_yarn", "streaming:window=56,n_sink=4", "log_n", "yarn:factor=4+log_n"]


@functools.cache
def exact(name):
    """The small model in float64. Every test leaves it as it was."""
    model = small(name).double()
    model.set_experts_implementation("eager")  # the other one has no float64
    return model


def pieces(model, ids=IDS, cache=None, mask=None):
    parts, edges = [], [0, *itertools.accumulate(CUTS)]
    for first, stop in itertools.pairwise(edges):
        given = {} if mask is None else {"attention_mask": mask[:, :stop]}
        with torch.no_grad():
            answer = model(input_ids=ids[:, first:stop], past_key_values=cache, use_cache=True, **given)
        cache = answer.past_key_values
        parts.append(answer.logits)
    return torch.cat(parts, 1), cache


@contextmanager
def choices(model):
    """The keys that the indexers choose, call by call."""
    chosen = []
    indexers = [part for name, part in model.named_modules() if name.endswith(".indexer")]
    assert indexers
    hooks = [part.register_forward_hook(lambda _, args, answer: chosen.append(answer.clone())) for part in indexers]
    try:
        yield chosen
    finally:
        for hook in hooks:
            hook.remove()


def _late(chosen):
    """What the rows choose that see more keys than they may: keys in order, or flags."""
    return chosen[:, :, 45:] if chosen.dtype == torch.bool else chosen[:, 45:].sort(-1).values


@pytest.mark.parametrize("name", EVERY)
def test_the_probe_sees_it_and_nothing_without_the_extension_changes(name):
    model = exact(name)
    masking = [layer for layer in probe(model) if layer.own_mask]
    assert masking
    assert not any(layer.unsupported for layer in masking)
    before, bare = trace(model), logits(model, IDS, use_cache=False)
    assert off(pieces(model)[0], bare) < CLOSE
    with extended(model, Extension(), mode="attention") as handle:
        assert off(logits(model, IDS, use_cache=False), bare) < CLOSE
        depths = [str(layer.depth) for layer in handle.layers if layer.probed.own_mask]
        assert f"layers {', '.join(depths)}: choose keys" in handle.describe()
        assert len(depths) == len(masking)
    for line in LINES:
        with extended(model, line, mode="attention"):
            assert trace(model) != before
        assert trace(model) == before
        assert torch.equal(logits(model, IDS, use_cache=False), bare)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("line", LINES)
def test_chunks_and_padded_rows_equal_the_whole(name, line):
    model = exact(name)
    mask = torch.ones(2, 100, dtype=torch.long)
    mask[1, :20] = 0
    both = torch.cat([IDS, IDS.roll(20, 1)])  # the second row: padding, then the first 80 tokens
    with extended(model, line, mode="attention"):
        whole = logits(model, IDS, use_cache=False)
        for cache in (None, DynamicCache(config=model.config)):
            assert off(pieces(model, cache=cache)[0], whole) < CLOSE
        batch = logits(model, both, attention_mask=mask, use_cache=False)
        assert off(batch[:1], whole) < CLOSE
        assert off(batch[1:, 20:], whole[:, :80]) < CLOSE
        assert off(pieces(model, both, mask=mask)[0][mask.bool()], batch[mask.bool()]) < CLOSE


@pytest.mark.parametrize("name", EVERY)
def test_our_attention_with_a_static_schedule_is_the_models_own_with_its_tables(name):
    """The indexer too rotates by the schedule, or another key would be chosen."""
    model = exact(name)
    with extended(model, "yarn:factor=4", mode="tables"):
        expected = logits(model, IDS, use_cache=False)
    assert off(logits(model, IDS, use_cache=False), expected) > 0.1
    with extended(model, "yarn:factor=4", mode="attention") as handle:
        assert off(logits(model, IDS, use_cache=False), expected) < CLOSE
        assert off(pieces(model)[0], expected) < CLOSE
        assert "the tables of the schedule" in handle.describe()


@pytest.mark.parametrize("name", EVERY)
def test_what_keeps_near_distances_keeps_near_logits(name):
    model = exact(name)
    bare = logits(model, IDS, use_cache=False)
    for line, near in (("dynamic_yarn", 64), ("rerope:window=16", 16), ("rerope:window=63", 63)):
        with extended(model, line):
            got = logits(model, IDS, use_cache=False)
        assert off(got[:, :near], bare[:, :near]) < CLOSE
        assert off(got[:, near:], bare[:, near:]) > 0.01


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("line", ["dynamic_yarn", "rerope:window=16", "log_n"])
def test_an_indexer_chooses_as_trained(name, line):
    """The first reads what it reads in the base model: embeddings."""
    model = exact(name)
    with choices(model) as bare:
        logits(model, IDS, use_cache=False)
    with extended(model, line, mode="attention") as handle, choices(model) as chosen:
        logits(model, IDS, use_cache=False)
        assert "the model's own tables, as trained" in handle.describe()
    assert torch.equal(*(_late(x[0]) for x in (chosen, bare)))


@pytest.mark.parametrize("name", INDEXED)
def test_unrotated_an_indexer_would_choose_otherwise(name):
    """So that the test above shows something: the identity that attention gets is no answer for the indexer."""
    model = exact(name)
    with choices(model) as bare:
        logits(model, IDS, use_cache=False)

    def forget(_, args, kwargs, answer):
        return tuple(torch.full_like(part, value) for part, value in zip(answer, (1, 0), strict=True))

    rotary = [part for part_name, part in model.named_modules() if part_name.endswith("rotary_emb")]
    hooks = [part.register_forward_hook(forget, with_kwargs=True) for part in rotary]
    try:
        with choices(model) as unrotated:
            logits(model, IDS, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    assert not torch.equal(*(_late(x[0]) for x in (unrotated, bare)))


@pytest.mark.parametrize("name", EVERY)
def test_what_is_chosen_is_among_the_keys_that_the_reach_shows(name):
    """A window of ours is what the model computes by itself from a mask with that window."""
    model, window = exact(name), 50
    i, j = torch.arange(100)[:, None], torch.arange(100)
    visible = (j <= i) & (j > i - window)
    mask = torch.zeros(100, 100, dtype=torch.float64).masked_fill(~visible, torch.finfo(torch.float64).min)
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    sliding = (j <= i) & (j > i - (getattr(model.config, "sliding_window", None) or 100))
    masks = {
        "indexed_attention": mask[None, None],
        "sliding_attention": mask[None, None].where(sliding | ~visible, torch.finfo(torch.float64).min),
        "linear_attention": None,
    }
    given = {kind: masks[kind] for kind in kinds} if name != "doge" else mask[None, None]
    expected = logits(model, IDS, attention_mask=given, use_cache=False)
    assert off(logits(model, IDS, use_cache=False), expected) > 0.01
    with extended(model, f"window:window={window}", mode="attention"):
        assert off(logits(model, IDS, use_cache=False), expected) < CLOSE


@pytest.mark.parametrize("name", ["deepseek_v32", "dots3_note_text", "doge"])
def test_packed_texts_choose_within_their_text(name):
    model = exact(name)
    positions = torch.cat([torch.arange(55), torch.arange(45)])[None]
    with extended(model, "dynamic_yarn"):
        packed = logits(model, IDS, position_ids=positions, use_cache=False)
        alone = [logits(model, part, use_cache=False) for part in (IDS[:, :55], IDS[:, 55:])]
    assert off(packed, torch.cat(alone, 1)) < CLOSE


@pytest.mark.parametrize("name", ["deepseek_v32", "doge"])
def test_the_weights_that_are_returned_are_the_models(name):
    model = exact(name)
    model.set_attn_implementation("eager")
    expected = model(IDS, output_attentions=True, use_cache=False).attentions
    with extended(model, Extension(), mode="attention"), torch.no_grad():
        got = model(IDS, output_attentions=True, use_cache=False).attentions
        for one, other in zip(got, expected, strict=True):
            assert off(one, other) < CLOSE
        summaries = capture_layers(model, IDS, lambda captured: captured.weights(90))
    for one, row in zip(got, summaries, strict=True):
        assert off(row, one[:, :, 90, :91].double()) < CLOSE
        assert ((row == 0).sum(-1) >= 91 - 40).all()


def test_a_static_cache_with_room_gives_the_same():
    model = exact("deepseek_v32")
    with extended(model, "dynamic_yarn"):
        whole = logits(model, IDS, use_cache=False)
        cache = StaticCache(model.config, max_cache_len=120)
        assert off(pieces(model, cache=cache)[0], whole) < CLOSE


@pytest.mark.parametrize("name", EVERY)
def test_the_cache_stays_the_models_own(name):
    """Which belongs to the extension, and has no more in it than the model's."""
    model = exact(name)
    with torch.no_grad():
        theirs = held_bytes(pieces(model)[1])
    with extended(model, "streaming:window=20,n_sink=4") as handle:
        cache = pieces(model)[1]
        assert held_bytes(cache) == theirs
        assert not any(isinstance(layer, ExtendedCacheLayer) for layer in cache.layers)
        assert "cache: the model's own, of all tokens" in handle.describe()
        assert "times the model's usual size" not in handle.describe()
        assert "which forgets nothing" not in handle.describe()
    with pytest.raises(Conflict, match="cannot be used by the base model"):
        model(IDS[:, :1], past_key_values=cache)
    seen = inspect(model, target_len=100)
    assert not seen.carried
    assert {one.cache_bytes for one in seen.methods if one.name in ("rerope", "streaming")} == {seen.cache_bytes()}


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa", "doge"])
def test_generation_by_beams_and_with_proposed_tokens(name):
    """Rows of the cache are reordered, and rejected tokens are removed again."""
    model = exact(name)
    with extended(model, "rerope:window=16"):
        plain, by_lookup = (
            model.generate(IDS[:, :60], max_new_tokens=12, do_sample=False, **given)
            for given in ({}, {"prompt_lookup_num_tokens": 3})
        )
        assert torch.equal(plain, by_lookup)
        beams = [
            model.generate(IDS[:, :60], max_new_tokens=6, num_beams=3, do_sample=False, use_cache=use)
            for use in (True, False)
        ]
        assert torch.equal(*beams)


def slopes(model, **given):
    """The gradients of the logits against fixed numbers, by parameter."""
    model.zero_grad()
    answer = model(IDS, use_cache=False, **given).logits
    answer.backward(torch.linspace(-1, 1, answer.numel(), dtype=answer.dtype).view_as(answer))
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("name", ["deepseek_v32", "qwen4_exp_text", "doge"])
def test_gradients_are_the_models_own_those_of_its_mask_too(name):
    model = exact(name)
    expected = slopes(model)
    with extended(model, Extension(), mode="attention"):
        got = slopes(model)
    assert got.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    for part, value in expected.items():
        assert float((got[part] - value).abs().max()) < CLOSE * largest, part
    if name == "doge":
        of_mask = [part for part in expected if part.endswith((".A", "dt_proj.weight"))]
        assert of_mask
        assert all(expected[part].any() and off(got[part], expected[part]) < 1e-3 for part in of_mask)


@pytest.mark.parametrize("name", ["deepseek_v32", "doge"])
def test_checkpointed_gradients_choose_the_same_keys(name):
    model = exact(name)
    model.config.use_cache = False
    try:
        with extended(model, "dynamic_yarn"):
            expected = slopes(model)
            model.activation_checkpointing_enable()
            model.train()
            got = slopes(model)
    finally:
        model.eval()
        model.activation_checkpointing_disable()
        model.config.use_cache = True
    for part, value in expected.items():
        assert off(got[part], value) < 1e-3 or not value.any(), part


@contextmanager
def changed(model, change):
    """One layer is called with another rotation."""
    module = model.model.layers[2].self_attn

    def before(_, args, kwargs):
        return args, {**kwargs, "position_embeddings": change(kwargs["position_embeddings"])}

    hook = module.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("name", ["deepseek_v32", "dots3_note_text"])
def test_a_layer_whose_cos_and_sin_were_copied_chooses_as_trained(name):
    """As they are where layers lie on several devices."""
    model = exact(name)
    with extended(model, "rerope:window=16"):
        expected = logits(model, IDS, use_cache=False)
        with changed(model, lambda pair: tuple(part.clone() for part in pair)):
            assert torch.equal(logits(model, IDS, use_cache=False), expected)


def test_a_rotation_that_is_not_known_is_refused():
    model = exact("deepseek_v32")
    refused = pytest.raises(
        DoesNotFit, match="Indexer is called with cos and sin that no rotary module of this pass has computed"
    )
    with changed(model, lambda pair: tuple(part[:, :1] for part in pair)), refused:
        extend(model, "rerope:window=16")
    with extended(model, "rerope:window=16"):
        assert logits(model, IDS).isfinite().all()


def windowed():
    """Layers with a window of 20 tokens, that choose 10 of them."""
    return tiny("doge", sliding_window=20, keep_window_size=10, num_hidden_layers=2)


def test_windows_are_kept_or_lifted():
    model = windowed()
    assert {layer.window for layer in probe(model)} == {20}
    bare = logits(model, IDS, use_cache=False)
    with extended(model, "rerope:window=16"):  # they keep their windows: nothing changes
        assert off(logits(model, IDS, use_cache=False), bare) < 1e-3
    with extended(model, Extension(), mode="attention", lift_windows=True):
        lifted = logits(model, IDS, use_cache=False)
    model.config.sliding_window = None
    assert off(lifted, logits(model, IDS, use_cache=False)) < 1e-3
    assert off(lifted, bare) > 0.01


def test_saved_and_loaded_it_is_the_same(tmp_path):
    model = small("deepseek_v32")
    with extended(model, "dynamic_yarn+log_n"):
        expected = logits(model, IDS, use_cache=False)
        save(model, tmp_path / "model")
    assert off(logits(load(tmp_path / "model"), IDS, use_cache=False), expected) < 1e-3


@pytest.mark.parametrize("lift", [False, True])
def test_windows_are_read_on_through_the_models_caches(lift):
    model = windowed()
    with extended(model, "dynamic_yarn+log_n", mode="attention", lift_windows=lift):
        whole = logits(model, IDS, use_cache=False)
        for cache in (None, DynamicCache(), *([] if lift else [DynamicCache(config=model.config)])):
            assert off(pieces(model, cache=cache)[0], whole) < 1e-3


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_accepted_and_a_mistake_is_not(name, dtype, monkeypatch):
    model = small(name).to(dtype)
    with extended(model, "rerope:window=16"):
        assert logits(model, IDS).isfinite().all()
    if name not in ("doge", "qwen4_exp_text"):  # the one does not rotate for its choice; the other barely depends on it
        monkeypatch.setattr(kept_rotation, "_may_rotate", lambda argument: False)
        with pytest.raises(DoesNotFit, match="an empty extension changes the logits"):
            extend(small(name).to(dtype), "rerope:window=16")


@pytest.mark.parametrize("text", ["alibi", "kerple", "bam", "sandwich", "nope"])
def test_what_rotates_nothing_leaves_the_choice_as_trained(text):
    """An indexer that does not rotate scores equal tokens alike, and which of them it takes depends on the layout."""
    model = small("deepseek_v32")
    ids = torch.randint(3, 20, (1, 97), generator=torch.Generator().manual_seed(3))  # few words, often repeated
    with extended(model, text):
        assert (score(model, ids, piece=33) - score(model, ids)).abs().max() < 1e-3
