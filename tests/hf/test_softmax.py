"""Models that add to the softmax: gemma2 caps its logits, gpt_oss has sinks. transformers' own code is the measure."""

import copy

import pytest
import torch

from ropewalk import DoesNotFit, Extension, extend, extended
from ropewalk.hf.probe import probe as probing

from hf.extended import CLOSE, CUTS, IDS, MASK, in_pieces
from hf.models import tiny
from hf.traces import logits

MODELS = ("gemma2", "gpt_oss")


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """One layer with a window and one without."""
    return tiny(request.param, num_hidden_layers=2)


@pytest.mark.parametrize(("name", "without"), [("gemma2", {"softcap": None}), ("gpt_oss", {"sinks": None})])
def test_what_they_add_makes_a_difference(name, without, monkeypatch):
    """Left out of what is probed, the model is refused: its own logits are not reproduced."""
    honest = probing.probe
    monkeypatch.setattr(probing, "probe", lambda host: [each._replace(**without) for each in honest(host)])
    with pytest.raises(DoesNotFit, match="an empty extension changes the logits"):
        extend(tiny(name), "rerope:window=8")


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_however_large_logits_are(size, monkeypatch):
    """An error is measured against them: of small ones none is too small, and rounding of large ones is none."""
    model, honest = tiny("gpt_oss"), probing.probe
    model.lm_head.weight.data *= size
    with extended(copy.deepcopy(model), "rerope:window=8"):
        pass
    monkeypatch.setattr(probing, "probe", lambda host: [each._replace(sinks=None) for each in honest(host)])
    with pytest.raises(DoesNotFit, match="an empty extension changes the logits"):
        extend(model, "rerope:window=8")


def slopes(model):
    """Nothing is asked of what comes after padding: there transformers makes something up."""
    model.zero_grad()
    labels = IDS.masked_fill(MASK.roll(1, 1) * MASK == 0, -100)
    model(input_ids=IDS, attention_mask=MASK, labels=labels, use_cache=False).loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def test_gradients_are_those_of_transformers(model):
    expected = slopes(model)
    with extended(model, Extension()):
        got = slopes(model)
    assert got.keys() == expected.keys()
    assert any("sinks" in name for name in got) == (model.config.model_type == "gpt_oss")
    for name, slope in expected.items():
        assert float((got[name] - slope).abs().max()) <= 1e-3 * max(float(slope.abs().max()), 1e-3), name


def test_sinks_are_those_that_the_model_has_now():
    model = tiny("gpt_oss", num_hidden_layers=2)
    with extended(model, Extension()):
        logits(model, IDS)
        for layer in model.model.layers:
            layer.self_attn.sinks = torch.nn.Parameter(layer.self_attn.sinks + 2)
        got = [logits(model, IDS, use_cache=cached) for cached in (False, True)]
    for each in got:
        torch.testing.assert_close(each, logits(model, IDS), rtol=0, atol=CLOSE * float(got[0].abs().max()))


def test_sinks_that_are_no_parameter_are_refused():
    model = tiny("gpt_oss", num_hidden_layers=2)
    attention = model.model.layers[1].self_attn
    sinks = attention.sinks.detach()
    del attention.sinks
    attention.sinks = sinks
    with pytest.raises(DoesNotFit, match="are not a parameter of the layer"):
        extend(model, "rerope:window=8")


@pytest.mark.parametrize("name", MODELS)
def test_half_precision(name):
    """By root mean squares: a rounding may send a token to another expert."""
    model = tiny(name, num_hidden_layers=2).to(torch.bfloat16)
    with extended(model, "rerope:window=8"):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        got, _ = in_pieces(model, CUTS["a prompt, then tokens"])
    real = MASK.bool()
    error, size = ((got - whole).float()[real].square().mean(), whole.float()[real].square().mean())
    assert float((error / size).sqrt()) < 0.1
