"""Listening to layers: rows of attention against the model's own, biases against its parameters."""

import pytest
import torch

import ropewalk as rw
from ropewalk.hf.attach.attention import capture_biases, capture_layers

from hf.models import tiny

IDS = torch.randint(3, 97, (2, 30), generator=torch.Generator().manual_seed(2))
ROWS = (0, 7, 29)


def rows_of(heard):
    return [heard.weights(row) for row in ROWS]


@pytest.mark.parametrize("name", ["llama", "qwen2", "phi", "mistral", "gemma2", "gpt_oss"])
def test_rows_are_those_of_the_models_own_attention(name):
    """Biases, pairs that do not turn, windows, a cap, sinks."""
    model = tiny(name, attention="eager", num_hidden_layers=2)
    with torch.no_grad():
        expected = model(IDS, output_attentions=True, use_cache=False).attentions
    with rw.extended(model, rw.Extension(), mode="attention"):
        found = capture_layers(model, IDS, rows_of)
    for layer, own in zip(found, expected, strict=True):
        for row, got in zip(ROWS, layer, strict=True):
            torch.testing.assert_close(got.float(), own[:, :, row, : row + 1], rtol=1e-3, atol=1e-4)


def test_a_row_of_logits_is_that_of_the_weights():
    model = tiny("llama", num_hidden_layers=1)
    with rw.extended(model, "rerope:window=8+log_n+alibi"):
        ((logits, weights),) = capture_layers(model, IDS, lambda heard: (heard.logits(20), heard.weights(20)))
    torch.testing.assert_close(logits.softmax(-1), weights)
    with rw.extended(model, "window:window=8"):
        ((logits,),) = capture_layers(model, IDS, lambda heard: (heard.logits(20),))
    assert (logits[..., :13] == -torch.inf).all()
    assert logits[..., 13:].isfinite().all()


def test_learned_numbers_are_heard():
    model = tiny("llama", num_hidden_layers=1)
    with rw.extended(model, "fire") as handle:
        (before,) = capture_layers(model, IDS, lambda heard: heard.logits(20))
        for name, value in handle.model.named_parameters():
            if "ropewalk_fire" in name:
                value.data += 1
        (after,) = capture_layers(model, IDS, lambda heard: heard.logits(20))
    assert not torch.allclose(before, after)


def test_who_cannot_be_listened_to_is_refused():
    model = tiny("llama", num_hidden_layers=1)
    with pytest.raises(rw.DoesNotFit, match="in mode attention, got 'no extension'; extend"):
        capture_layers(model, IDS, rows_of)
    with rw.extended(model, "pi:factor=2"), pytest.raises(rw.DoesNotFit, match="got 'mode tables'"):
        capture_layers(model, IDS, rows_of)
    with rw.extended(model, "log_n"), pytest.raises(rw.InvalidValue, match="ids must be whole numbers"):
        capture_layers(model, IDS.float(), rows_of)


def test_nobody_listens_afterwards():
    model = tiny("llama", num_hidden_layers=1)
    heard = []

    def fail(each):
        heard.append(each)
        raise KeyError

    with rw.extended(model, "log_n"):
        with pytest.raises(KeyError):
            capture_layers(model, IDS, fail)
        model(IDS)
    assert len(heard) == 1


def test_biases_are_the_models_parameters():
    model = tiny("qwen2", num_hidden_layers=2)
    with rw.extended(model, "rerope:window=8"):
        found = capture_biases(model)
    for heard, layer in zip(found, model.model.layers, strict=True):
        torch.testing.assert_close(heard.q_bhid.flatten(), layer.self_attn.q_proj.bias.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(heard.k_bgjd.flatten(), layer.self_attn.k_proj.bias.detach(), rtol=1e-5, atol=1e-6)


def test_a_model_without_biases_has_none_and_one_with_norms_is_refused():
    model = tiny("llama", num_hidden_layers=1)
    with rw.extended(model, "log_n"):
        assert not any(heard.q_bhid.any() or heard.k_bgjd.any() for heard in capture_biases(model))
    model = tiny("qwen3", num_hidden_layers=1)
    with rw.extended(model, "log_n"), pytest.raises(rw.DoesNotFit, match="a product plus a bias"):
        capture_biases(model)
