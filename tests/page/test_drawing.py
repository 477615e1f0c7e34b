"""What Python writes into the page: every preset, and the numbers of the equation and of the methods themselves."""

import dataclasses
import json
import math
from itertools import pairwise

import pytest
import torch
from extension.outsiders import method_file

import ropewalk as rw
from ropewalk.equation import reference_logits
from ropewalk.extension.parsing import PRESETS, parse_for
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.reach import effective_distances
from ropewalk.page import html
from ropewalk.page.assemble import FACTORS, OFFERED, USUAL
from ropewalk.page.drawing import BINS, SAMPLES, draw, grid, places

from examples import EXAMPLES
from page.conftest import given

SMALL = rw.Facts(trained_len=48, head_dim=16, heads=4, layers=4)
LENGTH = 200
LINES = (
    "yarn",
    "rerope+log_n",
    "self_extend",
    "streaming",
    "dual_chunk",
    "dpe:window=5,groups=[2,9,1]",
    "alibi",
    "xpos",
)
LINES += ("rerope_by_parts+log_n", "dynamic_ntk", "p_rope", "t5", "swan")
CLOSE = {"rel": 1e-3, "abs": 1e-9}  # four digits are drawn


@pytest.fixture(scope="module")
def drawn():
    return given(html())


def one(line, facts=SMALL, length=LENGTH):
    """A drawing, with its reach."""
    written = json.loads(json.dumps(draw(line, facts, length)))
    (drawing,) = written["drawings"].values()
    return {**drawing, **({} if "refused" in drawing else written["reaches"][drawing["reach"]])}


def test_a_method_from_outside_has_its_page(tmp_path):
    line = f"{method_file(tmp_path)}:Half:factor=4"
    drawing = one(f"{line}+log_n")
    assert drawing["terms"] == ["frequencies.half", "log_n"]
    assert drawing["pages"]["frequencies.half"].pop("math").startswith("<math")
    assert drawing["pages"]["frequencies.half"] == {
        "idea": "Half: every pair is slowed by the root of the factor.",
        "formula": "theta'_i = theta_i / sqrt(factor)",
        "source": "an experiment.",
        "takes": ["factor"],
    }
    assert drawing["pairs"]["slowed"][0] == 2
    assert "my.py has no method 'Quarter'" in one(line.replace("Half", "Quarter"))["refused"]
    assert "pages" not in one("yarn+log_n")


@pytest.mark.nightly
def test_the_page_has_every_preset_at_every_factor(drawn):
    lengths = [factor * USUAL.trained_len for factor in FACTORS]
    assert [grid["length"] for grid in drawn["lengths"]] == lengths
    for line in (*PRESETS, *OFFERED, "rerope+log_n"):
        for length in lengths:
            drawing = drawn["drawings"][f"{line}@{length}"]
            assert "refused" not in drawing, drawing
            assert drawing["reach"] in drawn["reaches"]


def test_the_page_says_of_every_method_what_its_docstring_says(drawn):
    methods = {f"{slot}.{method.name}" for slot, content in SLOTS.items() for method in content.methods}
    assert set(drawn["catalogue"]) == {*PRESETS, *methods}
    alibi = drawn["catalogue"]["biases.alibi"]
    for part in ("idea", "formula", "source"):
        assert " ".join(alibi[part].split()) in " ".join(rw.parse("biases.alibi").describe().split())
    assert drawn["drawings"]["yarn@32768"]["made"] == [[None, "by_parts:factor=8 + yarn_temperature:factor=8"]]
    assert drawn["drawings"]["yarn@32768"]["terms"] == ["yarn"]
    layered = drawn["drawings"]["hwfa@32768"]["made"]
    assert [layer for layer, _ in layered] == [None, -1]
    assert [layer for layer, _ in drawn["drawings"]["ms_poe@32768"]["made"]] == [None, "2–31"]


def test_facts_lines_and_a_length_of_the_readers_own():
    written = given(html(SMALL, lines=("yarn:factor=3", "ntk", "pi:factor=5"), target_len=100, presets=False))
    assert written["first"] == {"a": "yarn:factor=3", "b": "ntk", "to": 100}
    assert [grid["length"] for grid in written["lengths"]] == [48, 96, 100, 192, 384, 768, 1536, 3072]
    lines = {key.partition("@")[0] for key in written["drawings"]}
    assert lines == {"rope", "yarn:factor=3", "ntk", "pi:factor=5"}
    assert written["live"] is True


@pytest.mark.parametrize("line", LINES)
def test_pairs_are_those_of_the_schedule(line):
    extension = parse_for(line, SMALL, LENGTH).at_layer(0, SMALL)
    table, drawing = extension.frequencies_or_rope.table(SMALL, LENGTH).inv_freq, one(line)
    plain = 10_000.0 ** (-torch.arange(0, 16, 2).double() / 16)
    assert drawing["pairs"]["theta"] == pytest.approx(table.tolist(), **CLOSE)
    slowed = [math.inf if number is None else number for number in drawing["pairs"]["slowed"]]
    assert slowed == pytest.approx((plain / table).tolist(), **CLOSE)
    if line in ("yarn", "alibi", "dynamic_ntk"):  # whose last query sees the first key where it is
        asked = LENGTH * table / math.tau
        assert drawing["pairs"]["asked"] == pytest.approx(asked.tolist(), **CLOSE)
        new = (48 * plain < math.tau) & (LENGTH * table > 48 * plain)
        assert drawing["pairs"]["unseen"] == new.nonzero().flatten().tolist()


@pytest.mark.parametrize("line", LINES)
def test_the_decay_is_that_of_the_equation(line):
    """By the whole row of the reference, not by the drawing's own choice of keys."""
    extension = dataclasses.replace(parse_for(line, SMALL, LENGTH).at_layer(0, SMALL), positions=None)
    x = torch.full((1, 4, 1, 16), 16**-0.25, dtype=torch.float64)
    weights = extension.weights(SMALL, torch.Generator().manual_seed(0))
    row = reference_logits(x, x.expand(-1, -1, LENGTH, -1), extension, SMALL, weights=weights)[0, 0, 0].flip(0)
    drawing, ends = one(line)["decay"], sorted({round(LENGTH ** (bin / BINS)) for bin in range(BINS + 1)})
    for place, (start, stop) in enumerate(pairwise(ends)):
        seen = [logit for logit in row[start:stop].tolist() if math.isfinite(logit)]
        least, mean, most = (drawing[name][place] for name in ("least", "mean", "most"))
        if not seen:
            assert (least, mean, most) == (None, None, None)
        elif stop - start <= SAMPLES:  # all of its distances are drawn
            assert [least, mean, most] == pytest.approx([min(seen), sum(seen) / len(seen), max(seen)], **CLOSE)
        elif mean is not None:  # at a border of the reach none of a few may be seen
            assert min(seen) - 1e-3 <= least <= mean <= most <= max(seen) + 1e-3


def matrix(steps, count):
    """The distances of every row, as the scripts read them: runs of equal steps."""
    rows = torch.full((len(steps), count), math.nan, dtype=torch.float64)
    for row, runs in enumerate(steps):
        for start, many, first, step in zip(*(runs[part::4] for part in range(4)), strict=True):
            rows[row, start : start + many] = first + step * torch.arange(many)
    return rows


@pytest.mark.parametrize(
    "line", [*LINES, "dual_chunk:chunk=30,local=7", "self_extend:window=9,group=5", "bca", "string"]
)
def test_distances_are_those_of_the_reach(line):
    reach = parse_for(line, SMALL, LENGTH).at_layer(0, SMALL).reach_or_causal
    drawing, at = one(line), torch.tensor(places(LENGTH))
    expected = effective_distances(reach, at, at)
    torch.testing.assert_close(matrix(drawing["rows"], len(at)), expected, rtol=0, atol=0.02, equal_nan=True)
    whole = effective_distances(reach, torch.tensor([LENGTH - 1]), torch.arange(LENGTH))
    assert drawing["seen"] == int((~whole.isnan()).sum())
    assert drawing["furthest"] == pytest.approx(float(whole.nan_to_num(0).max()), abs=0.01)


def test_scales_of_rows_and_one_number_where_they_agree():
    assert one("yarn:factor=4")["scale"] == pytest.approx((0.1 * math.log(4) + 1) ** 2, rel=1e-3)
    rows = [max(math.log(place + 1) / math.log(48), 1) for place in places(LENGTH)]
    assert one("log_n")["scale"] == pytest.approx(rows, rel=1e-3)
    both = one("log_n+temperature:value=2")["scale"]
    assert both == pytest.approx([2 * row for row in rows], rel=1e-3)


def test_places_are_the_first_and_the_last_token_and_steps_between():
    assert places(200)[:3] == [0, 3, 6]
    assert places(200)[-1] == 199
    assert grid(1) == {"length": 1, "places": [0], "distances": []}
    assert all(1 <= distance < 4096 for distance in grid(4096)["distances"])


@pytest.mark.parametrize("line", [f"{slot}.{spec}" for slot, specs in EXAMPLES.items() for spec in specs])
def test_every_method_is_drawn(line):
    drawing = one(line, rw.Facts(trained_len=32, head_dim=16, heads=4, layers=4), 64)
    assert "refused" not in drawing, drawing
    assert drawing["terms"] == [line.partition(":")[0]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("yarm", "did you mean 'yarn'"),
        ("", "is empty"),
        ("yarn:factor=0.5", "factor must be at least 1"),
        ("rerope:window=48", "at most 47"),
        ("biases.sandwich:width=2000000000", "width of sandwich must be at most 512"),
        ("yarn+pi", "keep one"),
    ],
)
def test_a_line_that_is_refused_gives_its_sentence(line, words):
    assert words in one(line)["refused"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rope", {"new": {"count": 18}}),
        ("yarn", {"static": {}}),
        ("alibi", {"training": {}}),
        ("pi", {"tuning": {}, "static": {}}),
        ("ntk", {"static": {}, "new": {"count": 17}, "ntk": {"times": 8, "double": 16}}),
        ("streaming", {"forgets": {}}),
        ("nbce", {"decoding": {}, "new": {"count": 18}}),
        ("gqa", {"tuning": {}, "surgery": {}, "new": {"count": 18}}),
        ("dynamic_yarn", {}),
        ("rerope+log_n", {}),
    ],
)
def test_what_one_is_warned_of(line, words):
    assert dict(one(line, USUAL, 32_768)["warnings"]) == {f"warn_{word}": values for word, values in words.items()}


def test_a_partial_rotation_leaves_the_last_pairs_still():
    pairs = one("frequencies.partial:share=0.5")["pairs"]
    assert pairs["theta"][4:] == pairs["asked"][4:] == [0] * 4
    assert pairs["slowed"][4:] == [None] * 4


@pytest.mark.parametrize(
    "line",
    ["temperature:value=1e300", "leaky_rerope:window=9,leak=1e300", "interpolation:factor=1e300", "abf:new_base=1e300"],
)
def test_extreme_values_are_drawn_in_valid_json(line):
    json.dumps(draw(line, SMALL, LENGTH), allow_nan=False)


def test_a_line_that_replaces_a_schedule_is_drawn_on_the_model_before_it():
    table = tuple((10_000.0 ** (-torch.arange(0, 16, 2).double() / 16) / 4).tolist())
    stretched = dataclasses.replace(SMALL, trained_len=192, original_len=48, inv_freq=table)
    replaced, above = one("yarn+instead", stretched), one("yarn", stretched)
    assert replaced["ground"]["trained_len"] == 48
    assert "ground" not in above
    assert "engines" not in above  # export says, for this checkpoint
    assert ["warn_own", {}] in above["warnings"]
    assert ["warn_own", {}] not in replaced["warnings"]
