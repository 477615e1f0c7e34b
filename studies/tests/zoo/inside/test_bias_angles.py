"""The angle between queries or keys and the bias of the other side, against the model's own projections."""

import pytest
import torch

from ropewalk import convert
from ropewalk.methods.surgery import QKBias
from ropewalk.train.small_models import ModelShape, new_small_model

from studies.zoo.inside.bias_angles import CLAIM, angle_verdicts, bias_cosines

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=16)


def biased(shape=SHAPE):
    model = convert(new_small_model(shape), QKBias())
    with torch.no_grad():
        for layer in model.model.layers:
            for module in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                module.bias.normal_(generator=torch.Generator().manual_seed(module.bias.shape[0]))
    return model


def in_heads(x):
    return x.unflatten(-1, (-1, 8)).double()


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_cosines_are_those_of_the_projections(kv_heads):
    model = biased(ModelShape(**{**vars(SHAPE), "kv_heads": kv_heads}))
    ids = torch.randint(300, (2, 40), generator=torch.Generator().manual_seed(1))
    hidden = []
    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
    with torch.no_grad():
        model(input_ids=ids[:, -16:])
    measured = torch.tensor(bias_cosines(model, ids, trained_len=16))
    assert measured.shape == (2, 2, 2)
    for n, (layer, states) in enumerate(zip(model.model.layers, hidden, strict=False)):
        q_proj, k_proj = layer.self_attn.q_proj, layer.self_attn.k_proj
        q, k = in_heads(states @ q_proj.weight.T), in_heads(states @ k_proj.weight.T)
        a, b = in_heads(q_proj.bias), in_heads(k_proj.bias)
        for side, (content, bias) in enumerate(((q, b), (k, a))):
            of_heads = []
            for head in range(4):
                one = content[:, :, head * content.shape[2] // 4]
                other = bias[head * bias.shape[0] // 4]
                of_heads.append(((one @ other) / one.norm(dim=-1) / other.norm()).mean(1).abs())
            expected = torch.stack(of_heads).mean(0)
            assert measured[:, n, side].tolist() == pytest.approx(expected.tolist(), abs=2e-5)


def word(cosine):
    """Of two seeds with two texts and layers; texts differ a little."""
    texts = [[[cosine, 0.02]] * 2, [[cosine + 0.001, 0.021]] * 2]
    models = [{"method": "qk_bias", "seed": seed, "bias_angles": texts} for seed in range(2)]
    return {one.claim.name: (one.reason or one.word) for one in angle_verdicts(models)}[CLAIM.name]


def test_the_claim_can_hold_and_fail():
    assert word(0.03) == "agrees"
    assert word(0.3) == "disagrees at this size"
    assert word(0.0999) == "undecided"
