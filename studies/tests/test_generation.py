"""Claims about generated text: what is written, how it is judged, and that each verdict can be either."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.train.small_models import ModelShape, new_small_model

from studies import generation as module

SAMPLING = {"do_sample": True, "temperature": 1.0, "top_k": 0, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture
def model():
    return new_small_model(ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=16)).eval()


def some(count, seed=0):
    return torch.randint(300, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("line", [writer.line for writer in module.WRITERS.values()])
@pytest.mark.parametrize("use_cache", [True, False])
def test_pieces_are_those_that_generate_samples(model, line, use_cache):
    ids = some(100)
    with torch.no_grad(), rw.extended(model, line, target_len=128):
        pieces = module.sampled(model, ids, pieces=3, tokens=12, seed=5)
        torch.manual_seed(5)
        how = {**SAMPLING, "use_cache": use_cache, "num_return_sequences": 3}
        made = model.generate(ids[None], max_new_tokens=12, **how)
    assert torch.equal(pieces, made[:, 100:])
    assert len({tuple(piece) for piece in pieces.tolist()}) == 3


def test_a_loss_is_that_of_a_part_of_the_pieces_after_the_text(model):
    before, pieces = some(40), torch.stack([some(64, 1), some(64, 2)])
    rows = torch.cat([before.expand(2, -1), pieces], 1)
    with torch.no_grad():
        found = module.part_losses(model, before, pieces)
        logits = model(input_ids=rows).logits.double()
    for part, loss in enumerate(found):
        first = 40 + 16 * part
        at = logits[:, first - 1 : first + 15].flatten(0, 1)
        assert loss == pytest.approx(float(cross_entropy(at, rows[:, first : first + 16].flatten())), abs=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]),
        ([1, 2, 3, 4], [5, 6, 7, 8], [0, 0, 0, 0]),
        ([1, 2, 3, 4], [2, 1, 4, 3], [0, 1, 1, 2]),
        ([1, 9, 2, 3, 2], [9, 2, 2, 1, 2], [0, 1, 2, 2, 3]),
    ],
)
def test_the_longest_common_subsequence_worked_by_hand(one, other, expected):
    assert module.common_lengths(one, other) == expected
    assert module.common_lengths(other, one) == expected


def test_an_overlap_is_the_mean_over_pieces():
    truth = torch.arange(64)
    pieces = torch.stack([truth, truth + 100, torch.cat([truth[:16], truth[16:] + 100])])
    assert module.overlaps(pieces, truth) == pytest.approx([2 / 3, 1.5 / 3, (4 / 3) / 3, 1.25 / 3], abs=1e-5)


def test_another_text_is_of_another_project():
    assert module.elsewhere(["a", "b", "b", "c", "a"]) == [1, 3, 3, 4, 1]


def words(losses, overlaps):
    def of_texts(level):
        return [[level + text / 1000] * 4 for text in range(6)]

    kept = {
        "projects": list("abcdef"),
        module.LOSSES: {name: of_texts(losses.get(name, 3.0)) for name in (module.TRUTH, *module.WRITERS)},
        module.OVERLAPS: {name: of_texts(overlaps.get(name, 0.2)) for name in (*module.WRITERS, module.CHANCE)},
    }
    return [(one.reason or one.word) for one in module.verdicts(kept)]


def test_every_claim_can_hold_and_fail():
    ours, rope = module.LM_INFINITE, module.ROPE
    assert words({rope: 6.0}, {}) == ["agrees"] * 3
    assert words({ours: 3.05, rope: 6.0}, {ours: 0.19}) == ["agrees"] * 3
    assert words({ours: 3.15}, {ours: 0.17}) == ["disagrees at this size"] * 3


def test_the_loss_of_a_piece_is_the_mean_of_its_parts_and_its_overlap_the_last_one():
    parts = [1.0, 2.0, 4.0, 9.0]
    kept = {"projects": ["a", "b"], **{kind: {"x": [parts, parts]} for kind in (module.LOSSES, module.OVERLAPS)}}
    whole = [module._sum([module.Figure(1, "x", kind)], kept).value for kind in (module.LOSSES, module.OVERLAPS)]
    assert whole == [4.0, 9.0]
