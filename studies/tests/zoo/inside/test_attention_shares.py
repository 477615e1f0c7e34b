"""How much attention goes to a marker and to near keys, against the weights that transformers returns."""

import pytest
import torch

from ropewalk.train.small_models import ModelShape, new_small_model

from studies.zoo.inside.attention_shares import near_share, near_verdicts, sink_share, sink_verdicts

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=3, heads=2, trained_len=16)


@pytest.fixture
def model():
    """Its attention is far from even."""
    model = new_small_model(SHAPE, end=7).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(20)
    return model


@pytest.fixture
def ids():
    return torch.randint(300, (2, 40), generator=torch.Generator().manual_seed(1))


def of_later_queries(model, texts):
    """[layer, text, head, query, key]"""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return torch.stack(model(input_ids=texts, output_attentions=True).attentions)[:, :, :, 8:]


def test_shares_of_the_marker_are_those_of_the_weights(model, ids):
    measured = sink_share(model, ids, trained_len=16)
    texts = ids[:, -16:].clone()
    texts[:, 0] = 7
    expected = of_later_queries(model, texts)[..., 0].mean((2, 3)).T
    assert torch.allclose(torch.tensor(measured), expected, atol=1e-4)


def test_near_keys_are_the_last_eighth_of_the_trained_length(model, ids):
    measured = near_share(model, ids, trained_len=16)
    weights = of_later_queries(model, ids[:, -16:])
    near = torch.stack([weights[..., row, 8 + row - 1 : 8 + row + 1].sum(-1) for row in range(8)], dim=-1)
    assert torch.allclose(torch.tensor(measured), near.mean((2, 3)).T, atol=1e-4)


@pytest.mark.parametrize(("share", "word"), [(0.3, "agrees"), (0.05, "disagrees at this size")])
def test_the_verdict_on_sinks(share, word):
    """The first two layers do not count."""
    sinks = [[[0.9, 0.9, share + 0.001 * seed, share]] * 3 for seed in range(2)]
    models = [{"method": "marked", "seed": seed, "sink": sink} for seed, sink in enumerate(sinks)]
    assert sink_verdicts(models)[0].word == word
    assert sink_verdicts(models[:1])[0].reason == "a single seed"
    assert sink_verdicts([{"method": "marked", "seed": 0}])[0].reason == "not measured"


@pytest.mark.parametrize(("back", "word"), [(0.3, "agrees"), (0.7, "disagrees at this size")])
def test_the_verdict_on_near_keys(back, word):
    """The first two layers against the last two."""
    shares = [[[0.5, 0.5, 0.9, 0.1, back + 0.001 * seed, back]] * 3 for seed in range(2)]
    models = [{"method": "rope", "seed": seed, "near": near} for seed, near in enumerate(shares)]
    assert near_verdicts(models)[0].word == word
