"""Modules that attend several times in one forward: DiffLlama over halves of its values, HRM in cycles."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import DoesNotFit, Extension, extend, extended, inspect, load, save
from ropewalk.hf.attach.attention import capture_layers
from ropewalk.hf.probe import probe as probing
from ropewalk.hf.probe.probe import _once, probe
from ropewalk.hf.runtime.caches import held_bytes
from ropewalk.serve.generation.model import ServedModel, served_extensions

from engines.export.exported import exported
from hf.architectures import small
from hf.extended import CLOSE, CUTS, IDS, MASK, error, in_pieces
from hf.models import tiny
from hf.traces import logits, trace

pytestmark = pytest.mark.nightly

LINES = ["dynamic_yarn+log_n", "rerope:window=8", "streaming:window=10,n_sink=2", "self_extend:window=8,group=4"]

# Fewer single tokens than elsewhere: for each of them a module of HRM attends several times.
PIECES = {"a token, a prompt, then tokens": [1, 29, *[1] * 8, 22], "pieces": CUTS["pieces"]}


@pytest.fixture(scope="module", params=["diffllama", "hrm_text"])
def model(request):
    return small(request.param)


def test_a_module_is_one_layer(model):
    layers = probe(model)
    modules = {layer.module for layer in layers}
    assert len(layers) == len(modules)
    assert all(layer.slots and not layer.unsupported for layer in layers)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(IDS, past_key_values=cache, use_cache=True)
    assert sum(layer.slots for layer in layers) == len(cache.layers)


@pytest.mark.parametrize("text", LINES)
@pytest.mark.parametrize("cuts", PIECES.values(), ids=PIECES)
def test_whole_or_in_pieces(model, text, cuts):
    before, bare = trace(model), logits(model, IDS, use_cache=False)
    with extended(model, Extension(), mode="attention"):
        assert error(logits(model, IDS, use_cache=False), bare) < CLOSE
    with extended(model, text):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        assert error(whole, bare) > 10 * CLOSE
        for cache in (None, StaticCache(model.config, max_cache_len=80)):
            assert error(in_pieces(model, cuts, cache)[0], whole) < CLOSE
    assert trace(model) == before
    assert torch.equal(logits(model, IDS, use_cache=False), bare)


def test_a_row_does_not_depend_on_its_mates_or_its_padding(model):
    with extended(model, "rerope:window=8"):
        together, alone = logits(model, IDS, attention_mask=MASK), logits(model, IDS[:1, 7:])
    assert float((together[:1, 7:] - alone).abs().max() / alone.abs().max()) < CLOSE


def test_generated_saved_and_loaded(model, tmp_path):
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "attention_mask": MASK}
    with extended(model, "streaming:window=10,n_sink=2"):
        cached, whole = (model.generate(IDS, use_cache=use, **settings) for use in (True, False))
        assert torch.equal(cached, whole)
        expected = logits(model, IDS)
        save(model, tmp_path / "saved")
    assert error(logits(load(tmp_path / "saved"), IDS), expected) < CLOSE


def test_the_cache_is_the_models_own_and_that_is_said(model):
    length = IDS.shape[1]
    seen = inspect(model, target_len=128)
    held = {advice.name: advice.cache_bytes for advice in seen.methods}
    with extended(model, "streaming:window=10,n_sink=2") as handle:
        assert "cache: the model's own, which forgets nothing" in handle.describe()
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(IDS[:1], past_key_values=cache, use_cache=True)
    assert held["streaming"] == seen.cache_bytes() == held_bytes(cache) * 128 // length


def test_calls_that_differ_are_refused(monkeypatch):
    model = tiny("llama", num_hidden_layers=1)
    (layer,) = probe(model)
    other = layer._replace(scaling=2 * layer.scaling)
    assert _once([layer, layer])[0].unsupported == ""
    monkeypatch.setattr(probing, "probe", lambda host: _once([layer, other]))
    with pytest.raises(DoesNotFit, match="layer 0: attention 2 times in one forward, not alike"):
        extend(model, "rerope:window=8")


def test_where_a_layer_is_read_once_it_is_refused(model, tmp_path):
    with extended(model, "rerope:window=8"), pytest.raises(DoesNotFit, match="a layer can be captured once"):
        capture_layers(model, IDS, lambda layer: layer)
    with pytest.raises(DoesNotFit, match="attends several times in one forward pass, and"):
        ServedModel(model, served_extensions(model, {}), size=4, limit=2**20)
    with pytest.raises(DoesNotFit, match=r"attends several times in one forward, and the plugin|attention layers are"):
        exported(model, tmp_path / "out", "rerope:window=8", target_len=256)
