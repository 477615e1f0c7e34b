"""What the logits of the zoo's models are made of, and what follows for the claims of biases on queries and keys."""

import math

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from ropewalk.train.small_models import ModelShape, new_small_model

from studies.zoo.inside.logit_claims import BACK, CLAIMS, FRONT, LOGIT, SIZE, LogitTerms, logit_verdicts
from studies.zoo.inside.logit_terms import TERMS, logit_terms

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=16)
ALONE = 7  # so many distances have a bin of their own


def biased():
    model = new_small_model(SHAPE)
    model.config.attention_bias = True
    model = type(model)(model.config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    return model.eval()


def logits_by_distance(model, ids):
    """The mean over layers, heads and queries, by transformers' own rotation: [text, distance]."""
    inputs, layers = [], model.model.layers
    for layer in layers:
        layer.self_attn.q_proj.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    with torch.no_grad():
        model(input_ids=ids)
        cos, sin = model.model.rotary_emb(inputs[0], torch.arange(ids.shape[1])[None])
        means = []
        for layer, x in zip(layers, tuple(inputs), strict=True):
            q, k = (
                module(x).view(*x.shape[:2], 4, 8).transpose(1, 2)
                for module in (layer.self_attn.q_proj, layer.self_attn.k_proj)
            )
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
            scores = (q @ k.transpose(2, 3)).mean(1).double() / 8**0.5
            means.append(torch.stack([scores.diagonal(-far, 1, 2).mean(1) for far in range(ids.shape[1])], dim=1))
    return torch.stack(means).mean(0)


def test_the_four_terms_add_up_to_the_logits():
    model, ids = biased(), torch.randint(300, (3, 40), generator=torch.Generator().manual_seed(1))
    measured = logit_terms(model, ids, trained_len=16)
    terms = torch.tensor(measured["texts"], dtype=torch.float64)
    assert terms.shape == (3, 4, 2, len(measured["distances"]))
    assert measured["distances"][:ALONE] == list(range(ALONE))
    assert 30 <= measured["distances"][-1] <= 31
    whole = terms.sum(1).mean(1)
    assert torch.allclose(whole[:, :ALONE], logits_by_distance(model, ids[:, -32:])[:, :ALONE], atol=2e-4)


@pytest.mark.parametrize(("silent", "left"), [("qk", [3]), ("q", [1, 3]), ("k", [2, 3])])
def test_each_term_has_its_own_parts(silent, left):
    """Queries or keys without content leave the terms of their biases."""
    model, ids = biased(), torch.randint(300, (2, 40))
    with torch.no_grad():
        for layer in model.model.layers:
            for part in silent:
                getattr(layer.self_attn, f"{part}_proj").weight.zero_()
    sizes = torch.tensor(logit_terms(model, ids, trained_len=16)["texts"]).abs().amax((0, 2, 3))
    assert sizes.nonzero().flatten().tolist() == left


def test_a_model_without_biases_has_one_term():
    sizes = torch.tensor(
        logit_terms(new_small_model(SHAPE), torch.randint(300, (2, 40)), trained_len=16)["texts"]
    ).abs()
    assert sizes.amax((0, 2, 3)).nonzero().flatten().tolist() == [0]


BINS = [int(4 * math.log2(far + 1)) for far in range(32)]
IN_BINS = [[far for far in range(32) if BINS[far] == one] for one in dict.fromkeys(BINS)]
DISTANCES = [sum(one) / len(one) for one in IN_BINS]


def made(*, falls, rise=0.0, layers=(1.0, 1.0)):
    """Terms of two texts: term n falls by falls[n] within the trained length of 16, from as much as it falls."""
    far = torch.tensor(DISTANCES) / 16
    curves = torch.stack([fall * (2 - far.clamp(max=1)) + rise * (far - 1).clamp(min=0) for fall in falls])
    texts = curves[None, :, None] * torch.tensor(layers)[None, None, :, None]
    both = torch.cat([texts, texts * 1.01])
    return {"trained_len": 16, "distances": DISTANCES, "counts": list(map(len, IN_BINS)), "texts": both.tolist()}


def words(*, rope, qk_bias):
    models = [
        {"method": name, "seed": seed, "logit_terms": terms}
        for name, terms in {"rope": rope, "qk_bias": qk_bias}.items()
        for seed in range(2)
    ]
    return {one.claim.name: (one.reason or one.word) for one in logit_verdicts(models)}


DEEP = (1.0, 1.0, 1.0, 0.5, 0.5, 0.1)  # how clearly each of six layers falls


def test_every_claim_can_hold():
    rope = made(falls=[0.5, 0, 0, 0], rise=0.5)
    assert set(words(rope=rope, qk_bias=made(falls=[0.1, 0, 0, 2], layers=DEEP)).values()) == {"agrees"}


def test_every_claim_can_fail():
    rope = made(falls=[0.5, 0, 0, 0], rise=-0.5)
    assert set(words(rope=rope, qk_bias=made(falls=[0.1, 0, 0.3, -0.2], layers=DEEP[::-1])).values()) == {
        "disagrees at this size"
    }


def test_a_term_that_rises_steeply_is_not_the_largest_for_that():
    """What counts is the size: the source speaks of the term that dominates."""
    rope = made(falls=[0.5, 0, 0, 0])
    assert words(rope=rope, qk_bias=made(falls=[1, 0, 0, 0.5]))["qk-bias-term-largest"] == "disagrees at this size"
    assert words(rope=rope, qk_bias=made(falls=[0.5, 0, 0, -1]))["qk-bias-term-largest"] == "agrees"


def test_a_curve_through_0_has_a_size():
    """Its mean is 0, since it is as far above as below."""
    measured = made(falls=[0, 0, 0, 0])
    waves = torch.tensor(measured["texts"])
    waves[:, 3] = torch.tensor([1.0, -1.0]).repeat(len(DISTANCES))[: len(DISTANCES)]
    assert LogitTerms({**measured, "texts": waves.tolist()}).of_texts(SIZE, TERMS[3]).tolist() == pytest.approx([1, 1])


def test_every_distance_counts_alike():
    """Bins of far distances hold several: a term that is the distance has the mean distance, 0 to 14, as its size."""
    measured = made(falls=[0, 0, 0, 0])
    terms = torch.tensor(measured["texts"])
    terms[:, 0] = torch.tensor(DISTANCES)
    assert DISTANCES[-3:] == [23.5, 28.0, 31.0]
    sizes = LogitTerms({**measured, "texts": terms.tolist()}).of_texts(SIZE, TERMS[0])
    assert sizes.tolist() == pytest.approx([7.0, 7.0])


def test_the_measurement_says_what_its_bins_hold():
    measured = logit_terms(new_small_model(SHAPE), torch.randint(300, (1, 40)), trained_len=16)
    assert (measured["trained_len"], measured["counts"]) == (16, list(map(len, IN_BINS)))
    assert measured["distances"] == pytest.approx(DISTANCES)


def test_layers_in_front_are_the_first():
    terms = LogitTerms(made(falls=[1, 0, 0, 0], layers=(1.0, 3.0)))
    assert float(terms.of_texts(BACK, LOGIT)[0]) == pytest.approx(3 * float(terms.of_texts(FRONT, LOGIT)[0]))
    assert float(terms.of_texts(FRONT, TERMS[3])[0]) == 0


def test_without_measurements_nothing_is_judged():
    assert [(one.reason or one.word) for one in logit_verdicts([{}])] == len(CLAIMS) * ["not measured"]
