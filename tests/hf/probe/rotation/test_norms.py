"""HunYuan's norms follow the rotation, and have weights: they are found, and nothing about them is lost."""

import pytest
import torch

import ropewalk.engines.vllm.versions as versions
from ropewalk import DoesNotFit, Extension, extend, extended, inspect, load, save
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.probe.rotation import norm_weight

from engines.export.exported import exported
from hf.extended import CLOSE, CUTS, EXTENSIONS, IDS, MASK, error, in_pieces
from hf.kinds import mean_norms
from hf.models import tiny
from hf.traces import logits, trace


@pytest.fixture(scope="module")
def model():
    return tiny("hunyuan_v1_dense", num_hidden_layers=2)


def test_they_are_found_by_what_attention_gets(model):
    for layer, block in zip(probe(model), model.model.layers, strict=True):
        assert layer.norms == (block.self_attn.query_layernorm, block.self_attn.key_layernorm)
        assert (layer.interleaved, layer.norm_follows) == (False, True)
    for name in ("llama", "qwen3", "nanochat"):  # no norm, one before the rotation, one without weights
        assert not any(any(layer.norms) for layer in probe(tiny(name, num_hidden_layers=1)))


def test_their_weights_are_what_they_make_of_ones(model):
    norm = model.model.layers[0].self_attn.query_layernorm
    torch.testing.assert_close(norm_weight(norm, 16), norm.weight, rtol=1e-5, atol=0)


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("text", EXTENSIONS)
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_whole_or_in_pieces_under_every_extension(model, text, cuts):
    before, bare = trace(model), logits(model, IDS)
    with extended(model, text):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        assert error(in_pieces(model, cuts)[0], whole) < CLOSE
    assert trace(model) == before
    assert torch.equal(logits(model, IDS), bare)


@pytest.mark.parametrize("begin", [0, 5])
def test_logits_depend_on_positions_themselves(model, begin):
    """A rotation of both by the same angle is no longer nothing; our attention follows the model there."""
    places = {"position_ids": torch.arange(begin, begin + IDS.shape[1])[None].expand_as(IDS), "use_cache": False}
    bare, moved = logits(model, IDS, use_cache=False), logits(model, IDS, **places)
    assert (float((moved - bare).abs().max() / bare.abs().max()) > 0.01) == (begin > 0)
    with extended(model, Extension(), mode="attention"):
        assert error(logits(model, IDS, **places), moved) < CLOSE
    llama = tiny("llama", num_hidden_layers=2)
    assert error(logits(llama, IDS, **places), logits(llama, IDS, use_cache=False)) < CLOSE


def slopes(model):
    model.zero_grad()
    model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize("ones", [False, True])
def test_gradients_are_those_of_transformers(ones):
    """Of the norms too, even where all weights are still 1 and no ratio tells them apart."""
    model = tiny("hunyuan_v1_dense", num_hidden_layers=2)
    for layer in model.model.layers if ones else ():
        layer.self_attn.query_layernorm.weight.data.fill_(1)
        layer.self_attn.key_layernorm.weight.data.fill_(1)
    expected = slopes(model)
    with extended(model, Extension(), mode="attention"):
        got = slopes(model)
    for name, slope in expected.items():
        assert float((got[name] - slope).abs().max()) <= 1e-3 * max(float(slope.abs().max()), 1e-3), name


def test_weights_that_were_learned_meanwhile_count(model):
    model = tiny("hunyuan_v1_dense", num_hidden_layers=2)
    with extended(model, Extension(), mode="attention"):
        logits(model, IDS)
        for layer in model.model.layers:
            layer.self_attn.key_layernorm.weight.data[::2] *= 3
        got = [logits(model, IDS, use_cache=cached) for cached in (False, True)]
    for answer in got:
        assert error(answer, logits(model, IDS)) < CLOSE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    model = tiny("hunyuan_v1_dense", num_hidden_layers=2).to(dtype)
    bare = logits(model, IDS, use_cache=False).float()
    with extended(model, Extension(), mode="attention"):
        got = logits(model, IDS, use_cache=False).float()
    assert float((got - bare).square().mean().sqrt() / bare.square().mean().sqrt()) < 0.05


def test_generated_saved_and_loaded(model, tmp_path):
    settings = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "attention_mask": MASK}
    with extended(model, "rerope:window=8+log_n"):
        cached, whole = (model.generate(IDS, use_cache=use, **settings) for use in (True, False))
        assert torch.equal(cached, whole)
        expected = logits(model, IDS)
        save(model, tmp_path / "saved")
    assert error(logits(load(tmp_path / "saved"), IDS), expected) < CLOSE


def test_it_is_said(model):
    assert "logits depend on" in " ".join(str(inspect(model)).split())
    with extended(model, "rerope:window=8") as handle:
        assert "logits depend on the positions themselves" in handle.describe()
    with extended(model, "pi:factor=2") as handle:
        assert "logits depend" not in handle.describe()


def with_a_zero(model):
    model.model.layers[0].self_attn.key_layernorm.weight.data[3] = 0
    return model


@pytest.mark.parametrize("kind", [mean_norms, with_a_zero])
def test_other_norms_are_refused(kind):
    model = kind(tiny("hunyuan_v1_dense", num_hidden_layers=2))
    before = trace(model)
    with pytest.raises(DoesNotFit, match="layer 0 has a norm after the rotation, and it is no RMS norm"):
        extend(model, "rerope:window=8")
    assert trace(model) == before
    with extended(model, "pi:factor=4") as handle:
        assert handle.mode == "tables"


def test_an_engine_whose_attention_lacks_them_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "BY_TRANSFORMERS", frozenset())
    with pytest.raises(DoesNotFit, match="layer 0 has norms with weights after the rotation"):
        exported(model, tmp_path / "out", "rerope:window=8", target_len=128)
