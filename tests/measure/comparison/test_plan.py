"""What a comparison plans, against numbers worked by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ropewalk import inspect
from ropewalk.extension.notation import minutes
from ropewalk.measure.comparison import plan as module
from ropewalk.measure.comparison.plan import (
    Cost,
    PlannedRound,
    calibrate,
    calibration_text,
    cost_of,
    plan_comparison,
    seconds_needed,
)

from hf.architectures import small
from hf.models import tiny
from train.texts import tokenizer

# 10 parameters, one full layer with 6 operations a pair, one with a window of 4 and 2 a pair.
COST = Cost(parameters=10, layers=((6.0, None), (2.0, 4)), rate=100.0)


def test_operations_by_hand():
    """8 tokens: 8 x 20; 8^2 / 2 = 32 pairs; under a window of 4, 8 x 4 - 8 = 24."""
    assert COST.operations(8) == 160 + 6 * 32 + 2 * 24
    assert COST.operations(4) == 80 + 6 * 8 + 2 * 8  # all within the window
    assert COST.seconds(8) == 4.0
    assert COST.cell(8) == pytest.approx(1.1 * (4.0 + 64.0))  # and 320 tokens of questions


def test_the_operations_of_a_model():
    """Its layers have 4 heads of 16 and 16; a table of words that is not the head's costs nothing."""
    model = tiny("llama", num_hidden_layers=3)
    cost = cost_of(model, inspect(model))
    assert cost.layers == ((2 * 4 * 32, None),) * 3
    words = model.get_input_embeddings().weight.numel()
    assert cost.parameters == sum(one.numel() for one in model.parameters()) - words
    tied = tiny("llama", num_hidden_layers=3, tie_word_embeddings=True)
    assert cost_of(tied, inspect(tied)).parameters == cost.parameters


def test_seconds_of_a_round():
    """The base model and two lines, at 4 and 8 tokens; first the lines at 8 alone."""
    four, eight = COST.cell(4), COST.cell(8)
    assert seconds_needed(COST, (4, 8), 2, [PlannedRound(3)]) == pytest.approx(3 * 3 * (four + eight))
    first = PlannedRound(1, only_longest=True)
    assert seconds_needed(COST, (4, 8), 2, [first]) == pytest.approx(four + 3 * eight)
    assert seconds_needed(COST, (4, 8), 2, [first, PlannedRound(3)]) == seconds_needed(
        COST, (4, 8), 2, [PlannedRound(3)]
    )


def test_seconds_of_rounds_that_go_to_longer_texts():
    """First 4 and 8 tokens, then 16 too: what was read is not read again."""
    four, eight, more = (COST.cell(length) for length in (4, 8, 16))
    short = PlannedRound(1, only_longest=True, shortest=2)
    assert seconds_needed(COST, (4, 8, 16), 2, [short]) == pytest.approx(four + 3 * eight)
    both = [short, PlannedRound(1, only_longest=True)]
    assert seconds_needed(COST, (4, 8, 16), 2, both) == pytest.approx(four + 3 * eight + 3 * more)
    assert seconds_needed(COST, (4, 8, 16), 2, [*both, PlannedRound(1)]) == seconds_needed(
        COST, (4, 8, 16), 2, [PlannedRound(1)]
    )


class Clock:
    """A clock by which each reading takes the next of some seconds."""

    def __init__(self, *seconds):
        self.now, self.asked, self.seconds = 0.0, 0, iter(seconds)

    def __call__(self):
        self.asked += 1
        self.now += next(self.seconds) if self.asked % 2 == 0 else 0.0
        return self.now


def test_both_rates_by_a_chunk_behind_many_keys():
    """512 tokens take 3 s alone, and 7 s behind 8,192 keys: 4 s are of so many pairs in layers without a window."""
    model = tiny("llama", num_hidden_layers=1, max_position_embeddings=16384)
    got = calibrate(COST, model, torch.arange(2048) % 90 + 3, clock=Clock(9.0, 3.0, 7.0))
    assert got.pair_rate == pytest.approx(6.0 * 512 * 8192 / 4)
    of_pairs = COST.of_pairs(512) / got.pair_rate
    assert got.rate == pytest.approx(2 * 10 * 512 / (3 - of_pairs))
    assert got.seconds(512) == pytest.approx(3.0)
    assert got.times(4).seconds(5000) == pytest.approx(got.seconds(5000) / 4)


def test_the_rate_is_of_the_longest_text_that_is_read_in_seconds():
    """Where a chunk behind many keys says nothing: it was not slower."""
    model, ids = tiny("llama", num_hidden_layers=1, max_position_embeddings=16384), torch.arange(4096) % 90 + 3
    unclear = (1.0, 1.0, 1.0)
    got = calibrate(COST, model, ids, clock=Clock(*unclear, 10.0))  # so 2,048 are not read
    assert (got.rate, got.pair_rate) == (pytest.approx(COST.operations(511) / 10), None)
    quick = calibrate(COST, model, ids, clock=Clock(*unclear, 0.1, 1.0))
    assert quick.rate == pytest.approx(COST.operations(2047) / 1.0)
    assert calibrate(COST, model, ids[:32], clock=Clock(2.0)).rate == pytest.approx(COST.operations(31) / 2.0)


@pytest.mark.parametrize(("trained_len", "tokens"), [(16384, 2048), (1000, 1000)])
def test_the_text_for_the_rate_is_as_long_as_the_longest_that_is_timed(trained_len, tokens):
    """Within the trained length; a shorter text would hide how many pairs the machine does in a second."""
    assert len(calibration_text(tokenizer(), trained_len)) == tokens


@pytest.mark.parametrize("name", ["gpt2", "mamba2", "lfm2"])
def test_models_without_such_positions_or_caches(name, monkeypatch):
    """Learned positions end, and other layers keep states: then texts are read as they are."""
    monkeypatch.setattr(module, "CALIBRATED", (16, 32))
    got = calibrate(COST, small(name), torch.arange(40) + 3)
    assert got.pair_rate is None
    assert got.rate > 0


def test_windows_are_not_behind_many_keys():
    """Some of Gemma's layers see all keys."""
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    model = tiny("gemma3_text", max_position_embeddings=16384, layer_types=kinds, num_hidden_layers=4)
    cost = cost_of(model, inspect(model))
    every = sum(of_pair for of_pair, window in cost.layers if window is None)
    assert 0 < every < sum(of_pair for of_pair, _ in cost.layers)
    got = calibrate(cost, model, torch.arange(600) % 90 + 3, clock=Clock(9.0, 3.0, 7.0))
    assert got.pair_rate == pytest.approx(every * 512 * 8192 / 4)


@pytest.fixture(scope="module")
def inspection():
    """Of a model that was trained on 8,192 tokens."""
    model = tiny("llama", num_hidden_layers=2, max_position_embeddings=8192)
    return inspect(model)


def plan(inspection, seconds, asked=(), **given):
    """With a text of 32k taking this long."""
    cost = replace(COST, rate=COST.operations(32768) / seconds)
    how = {"lines": 5, "chosen": False, "samples": 8, "limit": 1800.0, "free": 2**40, "texts_of": lambda length: 8}
    return plan_comparison(cost, inspection, asked, **{**how, **given})


def test_lengths_as_far_as_time_goes(inspection):
    quick, slow = plan(inspection, 1.0), plan(inspection, 400.0)
    assert quick.lengths == (8192, 16384, 32768)
    assert quick.left_out == ()
    assert slow.lengths == (8192, 16384)  # two texts of 32k by six lines would take 80 minutes
    assert slow.left_out == (32768,)
    assert plan(inspection, 400.0, limit=None).lengths == (8192, 16384, 32768)


def test_lengths_as_far_as_memory_and_texts_go(inspection):
    assert plan(inspection, 1.0, free=2**29 + 1).lengths == (8192,)
    few = plan(inspection, 1.0, texts_of=lambda length: {8192: 8, 16384: 3}.get(length, 1))
    assert (few.lengths, few.rounds[-1].texts) == ((8192, 16384), 3)
    assert plan(inspection, 1.0, texts_of=lambda length: 0).lengths == (8192,)


def test_what_is_asked_for_stays(inspection):
    asked = plan(inspection, 4000.0, asked=(8192, 65536), chosen=True)
    assert (asked.lengths, asked.lines, asked.left_out) == ((8192, 65536), 5, ())
    assert asked.last == asked.rounds[0]  # the first round is finished, however long it takes


def test_lines_as_far_as_time_goes(inspection):
    assert plan(inspection, 400.0).lines == 5
    assert plan(inspection, 4000.0).lines < 5
    assert plan(inspection, 1e6).lines == 2
    assert plan(inspection, 1e6, lines=1).lines == 1


def test_rounds(inspection):
    """One text first, by all lines at the longest length; what is quick has one round."""
    assert plan(inspection, 0.01).rounds == (PlannedRound(8),)
    rounds = plan(inspection, 400.0, samples=6).rounds
    assert rounds == (
        PlannedRound(1, only_longest=True),
        PlannedRound(1),
        PlannedRound(2),
        PlannedRound(4),
        PlannedRound(6),
    )
    inside = plan(inspection, 400.0)
    assert inside.seconds(inside.last) <= 1800 < inside.seconds(inside.rounds[inside.rounds.index(inside.last) + 1])


def test_the_first_table_is_of_a_shorter_length_where_it_would_come_late(inspection):
    late, soon = (plan(inspection, seconds, limit=None) for seconds in (400.0, 20.0))
    assert late.rounds[:3] == (
        PlannedRound(1, only_longest=True, shortest=2),
        PlannedRound(1, only_longest=True),
        PlannedRound(1),
    )
    assert soon.rounds[:2] == (PlannedRound(1, only_longest=True), PlannedRound(1))
    assert late.unread(late.rounds[0]) == "texts of 32,768 tokens, 7 more texts"
    assert late.unread(late.rounds[1]) == "7 more texts"
    assert late.unread(late.rounds[-1]) == "texts of other lengths"


@pytest.mark.parametrize(("seconds", "words"), [(0.2, "1 s"), (89, "89 s"), (300, "5 min"), (12600, "3.5 h")])
def test_times_in_words(seconds, words):
    assert minutes(seconds) == words


def test_a_model_without_a_head_is_no_error():
    model = tiny("llama", num_hidden_layers=1)
    model.get_output_embeddings = lambda: None
    assert cost_of(model, SimpleNamespace(layers=())).parameters > 0
