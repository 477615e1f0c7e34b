"""Perplexities by their definitions: windows cut and weighed by hand, one pass against separate ones."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk import extended
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.measure.metrics.perplexity import (
    breakdown,
    strided_losses,
)
from ropewalk.measure.tasks import Perplexity

from hf.models import tiny
from measure.subjects import TRAINED, subject

TEXTS = [torch.randint(3, 97, (n,), generator=torch.Generator().manual_seed(n)) for n in (70, 61, 90)]


def losses(model, ids):
    """By the model's own logits, all at once and without a cache; the last token is only a target."""
    with torch.no_grad():
        logits = model(input_ids=ids[None, :-1], use_cache=False).logits[0]
    return cross_entropy(logits, ids[1:], reduction="none")


def llama(**changed):
    return tiny("llama", num_hidden_layers=2, initializer_range=0.1, **changed)


@pytest.mark.parametrize(("window", "stride"), [(20, 5), (20, 19), (20, 20), (60, 7)])
def test_windows_by_hand(window, stride):
    """Every token once, given all that its window has before it."""
    model, text = llama(), TEXTS[0]
    expected, told = [], 1
    while told < len(text):
        stop = min(told + (window if told == 1 else stride), len(text))
        expected.append(losses(model, text[max(0, stop - 1 - window) : stop])[-(stop - told) :])
        told = stop
    got = strided_losses(model, text, window=window, stride=stride)
    assert got.shape == (len(text) - 1,)
    torch.testing.assert_close(got, torch.cat(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [0, 21])
def test_strides_outside_their_window(stride):
    with pytest.raises(InvalidValue, match=r"stride must be from 1 to the window \(20\)"):
        strided_losses(llama(), TEXTS[0], window=20, stride=stride)


def test_a_text_that_is_too_short():
    with pytest.raises(DoesNotFit, match="text must be at least 62 tokens, got 61"):
        strided_losses(llama(), TEXTS[1], window=61, stride=61)


def test_breakdown_by_hand():
    excess = torch.zeros(200)
    excess[100:] = 10.0
    assert breakdown(excess, width=40, margin=0.25) == 101  # one such token among 40 is a mean of the margin, not above
    assert breakdown(excess, width=1) == 100
    assert breakdown(torch.full((200,), 0.25), width=10) is None
    spike = torch.zeros(200)
    spike[50] = 5.0
    assert breakdown(spike, width=40) is None
    assert breakdown(spike, width=10) == 50
    assert breakdown(torch.tensor([0.0] * 8 + [math.nan] * 56), width=4) == 8  # a model that answers NaN broke there
    with pytest.raises(InvalidValue, match="width must be from 1 to the 200 positions, got 201"):
        breakdown(excess, width=201)


def test_the_task_measures_its_definitions(tmp_path):
    who, task = subject(tmp_path, longest=128), Perplexity(samples=2)
    text = who.passages(2)[1]
    got = task.measure(who, 32, 1)
    assert got["truncated"] == pytest.approx(float(losses(who.model, text[:32]).mean()), abs=1e-5)
    assert got["strided"] == pytest.approx(float(strided_losses(who.model, text, window=32, stride=16).mean()))
    assert got["rolling"] == pytest.approx(float(strided_losses(who.model, text, window=32, stride=32).mean()))
    told = len(who.tokenizer.decode(text[1:]).encode())
    assert got["bits_per_byte"] == pytest.approx(got["strided"] * 127 / math.log(2) / told)
    assert "excess" not in got
    longest = task.measure(who, 128, 1)
    assert longest["truncated"] == longest["strided"] == longest["rolling"]
    level = strided_losses(who.model, text, window=TRAINED, stride=TRAINED // 2)
    total = sum(each * size for each, size in zip(longest["excess"], sizes(longest["ends"]), strict=True))
    assert total / 127 == pytest.approx(longest["rolling"] - float(level.mean()), abs=1e-5)


def sizes(ends):
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def test_the_normal_level_is_the_base_models(tmp_path):
    who, task = subject(tmp_path, longest=128), Perplexity(samples=1)
    text = who.passages(1)[0]
    level = strided_losses(who.model, text, window=TRAINED, stride=TRAINED // 2)
    with extended(who.model, "window:window=4"):
        got = task.measure(who, 128, 0)
        mine = strided_losses(who.model, text, window=127, stride=127)
    assert got["excess"][0] == pytest.approx(float((mine - level)[: got["ends"][0]].mean()), abs=1e-5)
    assert max(map(abs, got["excess"])) > 1e-3


ROW = {"truncated": 1.0, "strided": 2.0, "rolling": 3.0, "bits_per_byte": 1.0, "bytes": 10}
ENDS = [10 * n for n in range(1, 9)]


def test_a_breakdown_is_that_of_the_mean_over_texts():
    rising = {**ROW, "excess": [each / 8 for each in range(8)], "ends": ENDS}
    level = {**ROW, "bits_per_byte": 4.0, "bytes": 20, "excess": [0.0] * 8, "ends": ENDS}
    made = Perplexity(samples=2).condense([rising, level])
    assert made["strided"].value == pytest.approx(math.exp(2))
    assert made["bits_per_byte"].value == pytest.approx((10 * 1 + 20 * 4) / 30)
    # Means rise by 1/16, four together exceed 1/4 with the seventh bin; with the fifth where only the first is drawn.
    assert made["breakdown"][:2] == (70.0, 50.0)
    assert made["breakdown"].high == math.inf
    assert "breakdown" not in Perplexity(samples=2).condense([level, level])


def test_a_breakdown_holds_in_98_of_100_draws_of_ten():
    """Five texts of ten rise: of ten drawn, 2 to 8 do in 97.9 of 100 cases, 1 to 9 in 99.8. For ten an interval of 95 %
    has to hold 98.3 of 100 draws."""
    rise = [0.2 * 1.1**n for n in range(40)]
    rows = [{**ROW, "excess": rise if n < 5 else [0.0] * 40, "ends": list(range(1, 41))} for n in range(10)]
    ends = {k: [n + 1 for n in range(3, 40) if k * sum(rise[n - 3 : n + 1]) > 10] for k in range(1, 11)}
    place = {k: found[0] if found else math.inf for k, found in ends.items()}
    assert len(set(place.values())) == 10
    assert Perplexity(samples=10).condense(rows)["breakdown"] == (place[5], place[9], place[1], 10)
