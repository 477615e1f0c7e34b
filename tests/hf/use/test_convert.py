"""Surgery on models: what the new one computes, what it holds, and that plain transformers loads it."""

import pytest
import torch
from hf.models import tiny
from hf.traces import IDS, logits, trace
from transformers import AutoModelForCausalLM, DynamicCache

from ropewalk import DoesNotFit, InvalidValue
from ropewalk.hf import convert, extended


def whole(name="llama", **changed):
    return tiny(name, num_hidden_layers=2, num_key_value_heads=4, **changed)


def test_fewer_key_heads_compute_with_the_mean_of_their_group():
    model = whole()
    for layer in model.model.layers:  # heads of a group alike: then nothing is lost
        for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            projection.weight.data = (
                projection.weight.data.view(2, 2, 16, -1)[:, :1].expand(2, 2, 16, -1).reshape(64, -1)
            )
    before = trace(model)
    made = convert(model, "gqa:kv_heads=2")
    assert made.config.num_key_value_heads == 2
    torch.testing.assert_close(logits(made), logits(model), rtol=0, atol=1e-4)
    assert trace(model) == before


def test_the_cache_is_smaller_and_plain_transformers_loads_it(tmp_path):
    model = whole()
    made = convert(model, "gqa:kv_heads=1")
    sizes = []
    for each in (model, made):
        cache = DynamicCache()
        logits(each, past_key_values=cache)
        sizes.append(cache.layers[0].keys.numel())
    assert sizes[0] == 4 * sizes[1]
    made.save_pretrained(tmp_path)
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path)), logits(made))
    with extended(made, "rerope:window=8"):
        assert logits(made).isfinite().all()


def test_biases_begin_at_nothing_and_learn(tmp_path):
    model = whole()
    made = convert(model, "qk_bias")
    assert torch.equal(logits(made), logits(model))
    made.train()(input_ids=IDS, labels=IDS).loss.backward()
    assert float(made.model.layers[0].self_attn.q_proj.bias.grad.abs().max()) > 0
    made.save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).model.layers[0].self_attn.k_proj.bias is not None


def test_refusals():
    with pytest.raises(DoesNotFit, match="divisor"):
        convert(tiny("llama", num_hidden_layers=1), "gqa:kv_heads=4")
    with pytest.raises(DoesNotFit, match="cannot describe the change"):
        convert(whole("mistral"), "qk_bias")
    with pytest.raises(InvalidValue, match="operation on weights"):
        convert(whole(), "yarn:factor=4")
    model = whole()
    with extended(model, "yarn:factor=4"), pytest.raises(InvalidValue, match="the model is under an extension"):
        convert(model, "qk_bias")


def test_the_last_layer_without_positions():
    """HWFA: windows and rotation below, everything and no rotation on top."""
    model = tiny("llama", num_hidden_layers=3)
    with extended(model, "hwfa") as handle:
        below, top = handle.layers[0].extension, handle.layers[-1].extension
    assert below.reach.name == "window"
    assert (top.reach or below.reach).name != "window" or top.frequencies.name == "none"
    assert top.frequencies.name == "none"
