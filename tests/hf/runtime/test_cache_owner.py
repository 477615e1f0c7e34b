"""Whose cache it is, whichever way an extension was put in; and nothing is held that nobody else holds."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import Conflict, extended

from hf.models import tiny
from hf.traces import logits

IDS = torch.randint(3, 97, (1, 40), generator=torch.Generator().manual_seed(3))
MODES = ["tables", "attention"]
MAKERS = {
    "dynamic": lambda model: DynamicCache(config=model.config),
    "static": lambda model: StaticCache(config=model.config, max_cache_len=60),
    "the model's own": lambda model: None,
}


def filled(model, maker="dynamic"):
    """A cache of the first tokens; `read` goes on with the next."""
    with torch.no_grad():
        return model(input_ids=IDS[:, :20], past_key_values=MAKERS[maker](model), use_cache=True).past_key_values


def read(model, cache):
    return logits(model, IDS[:, 20:21], past_key_values=cache)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("mode", MODES)
def test_the_bare_models_cache(llama, mode, maker):
    cache = filled(llama, maker)
    with extended(llama, "yarn:factor=4", mode=mode), pytest.raises(Conflict, match="filled by the base model"):
        read(llama, cache)
    read(llama, cache)


@pytest.mark.sampled(cases=6)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("after", [("yarn:factor=8", "tables"), ("yarn:factor=4", "other"), ("rerope:window=8", None)])
@pytest.mark.parametrize("mode", MODES)
def test_the_cache_of_another_extension_or_of_the_other_way(llama, mode, after, maker):
    with extended(llama, "yarn:factor=4", mode=mode):
        cache = filled(llama, maker)
    text, second = after
    second = MODES[mode == "tables"] if second == "other" else second
    with extended(llama, text, mode=second), pytest.raises(Conflict, match=f"by_parts.*, mode {mode}"):
        read(llama, cache)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_cache_that_outlives_its_extension(llama, mode, maker):
    with extended(llama, "yarn:factor=4", mode=mode):
        cache = filled(llama, maker)
        expected = logits(llama, IDS[:, :21], use_cache=False)[:, 20:]
    with pytest.raises(Conflict, match="cannot be used by the base model"):
        read(llama, cache)
    with extended(llama, "yarn:factor=4", mode=mode):  # the same again: it goes on
        torch.testing.assert_close(read(llama, cache), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("maker", ["dynamic", "static"])
def test_emptied_it_is_anybodys(llama, maker):
    with extended(llama, "yarn:factor=4"):
        cache = filled(llama, maker)
    cache.reset()
    torch.testing.assert_close(
        logits(llama, IDS, past_key_values=cache), logits(llama, IDS, use_cache=False), rtol=0, atol=1e-3
    )
    with extended(llama, "yarn:factor=4"), pytest.raises(Conflict, match="filled by the base model"):
        read(llama, cache)
    cache.reset()
    with extended(llama, "yarn:factor=4"):
        torch.testing.assert_close(
            logits(llama, IDS, past_key_values=cache), logits(llama, IDS, use_cache=False), rtol=0, atol=1e-3
        )


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
def test_caches_are_not_kept_alive(llama, mode):
    with extended(llama, "yarn:factor=4", mode=mode):
        known = weakref.ref(filled(llama))
        gc.collect()
        assert known() is None


@pytest.mark.parametrize("mode", MODES)
def test_the_cache_of_another_trained_length(llama, mode):
    with extended(llama, "yarn:factor=4", mode=mode, trained_len=32):
        cache = filled(llama)
    said = "filled under this extension by another model, or with another trained_len or lift_windows; begin"
    with extended(llama, "yarn:factor=4", mode=mode, trained_len=16), pytest.raises(Conflict, match=said):
        read(llama, cache)


def test_the_cache_of_kept_windows_under_lifted_ones():
    model, cache = tiny("mistral"), DynamicCache()
    with extended(model, "log_n", mode="attention"), torch.no_grad():
        model(input_ids=IDS[:, :20], past_key_values=cache)
    with (
        extended(model, "log_n", mode="attention", lift_windows=True),
        pytest.raises(Conflict, match="with another trained_len or lift_windows; begin"),
    ):
        read(model, cache)


@pytest.mark.parametrize("mode", MODES)
def test_a_copy_has_the_owner_of_what_was_copied(llama, mode):
    with extended(llama, "yarn:factor=4", mode=mode):
        cache = filled(llama)
        copied = copy.deepcopy(cache)
        others = [copy.deepcopy(copied)]
        others += [pickle.loads(pickle.dumps(cache))] if mode == "tables" else []
        expected = read(llama, cache)
        for again in others:
            torch.testing.assert_close(read(llama, again), expected)
    with pytest.raises(Conflict, match="cannot be used by the base model"):
        read(llama, copied)


@pytest.mark.parametrize("text", ["rerope:window=8+log_n", "streaming:window=8,n_sink=2", "dynamic_yarn"])
def test_what_begins_in_inference_mode_goes_on_outside(llama, text):
    with extended(llama, text):
        with torch.inference_mode():
            cache = filled(llama)
        expected = logits(llama, IDS[:, :21], use_cache=False)[:, 20:]
        torch.testing.assert_close(read(llama, cache), expected, rtol=0, atol=1e-3)


def test_training_makes_no_cache_that_is_nobodys():
    model = tiny("llama", num_hidden_layers=1).train()
    with extended(model, "rerope:window=8"), torch.no_grad():
        assert model(input_ids=IDS, use_cache=True).past_key_values is None
