"""How much attention goes to the marker, against the weights that transformers returns."""

import pytest
import torch

from ropewalk.lab.recipes.zoo.inside.sink_share import sink_share, sink_verdicts
from ropewalk.lab.small_models import ModelShape, fresh

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=3, heads=2, trained_len=16)


def test_shares_are_those_of_the_weights():
    model = fresh(SHAPE, end=7).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(20)
    ids = torch.randint(300, (2, 40), generator=torch.Generator().manual_seed(1))
    measured = sink_share(model, ids, trained_len=16)
    texts = ids[:, -16:].clone()
    texts[:, 0] = 7
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(model(input_ids=texts, output_attentions=True).attentions)
    expected = weights[:, :, :, 8:, 0].mean((2, 3)).T
    assert torch.allclose(torch.tensor(measured), expected, atol=1e-4)


@pytest.mark.parametrize(("share", "word"), [(0.3, "reproduced"), (0.05, "not reproduced")])
def test_its_verdict(share, word):
    """The first two layers do not count."""
    models = [{"seed": seed, "sink": [[0.9, 0.9, share + 0.001 * seed, share]] * 3} for seed in range(2)]
    assert sink_verdicts(models)[0].word == word
    assert sink_verdicts(models[:1])[0].word == "not judged: a single seed"
    assert sink_verdicts([{"seed": 0}])[0].word == "not measured"
