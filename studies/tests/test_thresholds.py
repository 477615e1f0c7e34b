"""Claims about searched thresholds of turns: what is read, what is chosen, and that each verdict can be either."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk import extended, parse
from ropewalk.train.small_models import ModelShape, new_small_model

from studies import thresholds as module

TRAINED_LEN = 16
SMALL_SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=TRAINED_LEN)


def test_one_reading_has_the_losses_of_shorter_texts():
    """Each is the loss of the last eight tokens of the text's beginning, read alone."""
    model = new_small_model(SMALL_SHAPE)
    ids = torch.randint(300, (8 * TRAINED_LEN,), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), extended(model, module.Turns(0.3, 1.5).line, target_len=8 * TRAINED_LEN):
        found = module.losses_of(model, ids, TRAINED_LEN)
        for times in (1, 2, 4, 8):
            logits = model(input_ids=ids[None, : times * TRAINED_LEN]).logits[0, -9:-1]
            expected = cross_entropy(logits.double(), ids[times * TRAINED_LEN - 8 : times * TRAINED_LEN])
            assert found[str(times)] == pytest.approx(float(expected), abs=2e-5)  # which are rounded to 1e-5
    assert len(set(found.values())) == 4


def test_thresholds_change_what_is_read():
    model = new_small_model(SMALL_SHAPE)
    texts = [torch.randint(300, (8 * TRAINED_LEN,), generator=torch.Generator().manual_seed(0))]
    one, other = module.losses_under(model, [module.Turns(0.01, 0.02), module.Turns(1, 2)], texts, TRAINED_LEN).values()
    assert one["8"] != other["8"]


def test_what_is_set_by_hand_is_the_preset():
    extension = parse(module.BY_HAND.line, trained_len=512, target_len=4096)
    assert extension == parse("yarn", trained_len=512, target_len=4096)
    assert module.BY_HAND in module.GRID


def test_the_names_of_thresholds_are_unique():
    assert len({str(pair) for pair in module.GRID}) == len(module.GRID)


def searched(**at_8x):
    """The search, with 2 nats at every length; other losses at 8x by name."""
    losses = {str(pair): {str(times): [2.0, 2.0] for times in (1, 2, 4, 8)} for pair in module.GRID}
    for name, loss in at_8x.items():
        low, high = name.removeprefix("from_").split("_to_")
        losses[f"{low} to {high} turns"]["8"] = [loss, loss + 0.2]
    return {"projects": ["z", "y"], module.LOSSES: losses}


def test_the_lowest_loss_at_8x_is_chosen():
    """Over all pairs, and over those with YaRN's lower threshold."""
    search = searched(from_2_to_16=1.5, from_1_to_64=1.7, from_4_to_16=1.6)
    assert module.found_in(search[module.LOSSES]) == ((2, 16), (1, 64))
    search[module.LOSSES]["8 to 64 turns"]["4"] = [0.0, 0.0]
    assert module.found_in(search[module.LOSSES]) == ((2, 16), (1, 64))


def test_where_yarns_is_best_the_next_one_is_judged():
    search = searched(from_1_to_32=1.0, from_2_to_16=1.5, from_1_to_64=1.7)
    assert module.found_in(search[module.LOSSES]) == ((2, 16), (1, 64))
    assert "1 to 32 turns, was number 1 of" in module.how(search)
    assert "1 to 32 turns, was number 3 of" in module.how(
        searched(from_1_to_32=1.8, from_2_to_16=1.5, from_1_to_64=1.7)
    )


def words(hand, pair, upper, short=2.0):
    """Verdicts by the losses at 8x; at 1x YaRN's is 2."""

    def losses(short, long):
        levels = {"1": short, "2": 2.0, "4": 2.0, "8": long}
        return {times: [level + text / 1000 for text in range(6)] for times, level in levels.items()}

    judging = {"1 to 32 turns": losses(2.0, hand), "2 to 16 turns": losses(short, pair)}
    kept = {
        module.SEARCH: searched(from_2_to_16=1.5, from_1_to_64=1.7),
        module.FINAL: {
            "projects": list("abcdef"),
            module.LOSSES: {**judging, "1 to 64 turns": losses(2.0, upper)},
        },
    }
    return {one.claim.name: (one.reason or one.word) for one in module.verdicts(kept)}


def test_every_claim_can_hold_and_fail():
    assert set(words(2.0, 1.9, 1.8, 2.01).values()) == {"agrees"}
    assert set(words(2.0, 2.1, 2.2, 2.03).values()) == {"disagrees at this size"}
    assert words(2.0, 1.9, 2.1) == {
        "searched": "agrees",
        "searched-upper": "disagrees at this size",
        "short-texts": "agrees",
    }
    assert words(2.0, 2.0, 2.0)["searched"] == "undecided"
