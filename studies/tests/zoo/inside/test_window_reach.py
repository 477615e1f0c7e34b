"""How many tokens reach the last one through all layers, against changing one token after the other."""

import torch

import ropewalk as rw
from ropewalk.train.small_models import ModelShape, new_small_model

from studies.zoo.inside.window_reach import reach_verdicts, window_reach

LAYERS, WINDOW = 3, 5
SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=LAYERS, heads=2, trained_len=16)


def test_tokens_that_reach_the_last_one_are_those_that_change_it():
    model = new_small_model(SHAPE).eval()
    rw.extend(model, f"window:window={WINDOW}")
    ids = torch.randint(300, (2, 40), generator=torch.Generator().manual_seed(1))
    measured = window_reach(model, ids, WINDOW, LAYERS)
    with torch.no_grad():
        whole = model(input_ids=ids[:1]).logits[0, -1]
        changed = []
        for back in range(1, 41):
            other = ids[:1].clone()
            other[0, -back] = (other[0, -back] + 7) % 300
            changed.append(not torch.equal(model(input_ids=other).logits[0, -1], whole))
    reached = LAYERS * (WINDOW - 1) + 1
    assert measured["tokens"] == [reached] * 2
    assert changed == [True] * reached + [False] * (40 - reached)


def verdict(tokens):
    reach = {"window": 10, "layers": 6, "tokens": [tokens] * 3}
    return reach_verdicts([{"seed": seed, "reach": reach} for seed in range(2)])[0]


def test_its_verdict():
    assert verdict(55).word == "agrees"
    assert verdict(50).word == "disagrees at this size"
    assert verdict(55).figures == ["91.7 against 90.0"]
    reach = {"window": 10, "layers": 6, "tokens": [55]}
    assert reach_verdicts([{"seed": 0, "reach": reach}])[0].reason == "a single seed"
    assert reach_verdicts([{"seed": 0}])[0].reason == "not measured"
