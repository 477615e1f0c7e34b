"""Claims about the order of near tokens: what is swapped, what is measured, and that each verdict can be either."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk.train.small_models import ModelShape, new_small_model

from studies import order as module


@pytest.mark.parametrize("behind", module.BEHIND)
def test_pairs_are_swapped_before_the_scored_tokens(behind):
    ids = torch.arange(100)
    changed, scored = module.swapped(ids, behind)
    assert scored == [32, 64, 96]
    expected = ids.clone()
    for at in scored:
        expected[at - behind - 1], expected[at - behind] = at - behind, at - behind - 1
    assert torch.equal(changed, expected)
    assert torch.equal(changed[scored], ids[scored])


def test_a_pair_of_equal_tokens_is_no_pair():
    ids = torch.arange(100)
    ids[63] = ids[62]
    changed, scored = module.swapped(ids, 1)
    assert scored == [32, 96]
    assert torch.equal(changed[33:94], ids[33:94])


def test_the_increase_is_that_of_the_scored_tokens():
    model = new_small_model(ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=16))
    ids = torch.randint(300, (100,), generator=torch.Generator().manual_seed(0))
    changed, scored = module.swapped(ids, 2)
    with torch.no_grad():
        before, after = (
            cross_entropy(model(input_ids=x[None]).logits[0, :-1].double(), x[1:], reduction="none")
            for x in (ids, changed)
        )
    expected = sum(float(after[at - 1] - before[at - 1]) for at in scored) / len(scored)
    assert expected != 0
    assert module.increase(model, ids, 2) == pytest.approx(expected, abs=1e-5)


def words(**increases):
    kept = {
        "projects": list("abcdef"),
        module.INCREASES: {
            line: {str(far): [level + n / 1000 for n in range(6)] for far in module.BEHIND}
            for line, level in {"rope": 5.0, "pi": 5.0, "ntk": 5.0, "by_parts": 5.0, **increases}.items()
        },
    }
    return {one.claim.name: (one.reason or one.word) for one in module.verdicts(kept)}


def test_every_claim_can_hold_and_fail():
    assert set(words(pi=3, ntk=4).values()) == {"agrees"}
    assert set(words(pi=6, ntk=6).values()) == {"disagrees at this size"}
    assert set(words().values()) == {"undecided"}
