"""Comparisons: who is compared, on what, and the words of a verdict."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch.nn.functional import cross_entropy

import ropewalk as rw
from ropewalk.extension.parsing import read_line
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure.comparison.changes import change_at, changes_by_position
from ropewalk.measure.comparison.comparison import measure_candidates
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.verdict import FAR_FACTS, NO_ESTIMATE, verdict
from ropewalk.measure.metrics.intervals import Estimate, difference, mean, share
from ropewalk.measure.metrics.losses import HeldOutTexts, token_losses
from ropewalk.measure.report.comparison import as_json
from ropewalk.measure.tasks import Context, Damage, Passkey, Perplexity, Repetition
from ropewalk.measure.tasks.context import window_loss

from measure.subjects import TRAINED, subject

TASKS = [Context(samples=3), Repetition(samples=2), Damage(samples=2)]


@pytest.fixture
def made(tmp_path):
    return measure_candidates(
        subject(tmp_path, longest=128), ["yarn", "window"], [64, 128], Store(tmp_path / "s"), tasks=TASKS
    )


def test_the_base_model_and_the_trained_length_come_first(made):
    assert [each.line for each in made.candidates] == ["bare", "yarn", "window"]
    assert made.lengths == (TRAINED, 64, 128)
    assert made.candidates[1].extension == rw.parse("yarn", trained_len=TRAINED, target_len=128)


def test_a_change_is_against_the_base_model_at_its_trained_length(made):
    bare, yarn, _ = made.candidates
    short = [each["loss"] for each in bare.at("context", TRAINED).samples]
    for each in (bare, yarn):
        long = [sample["loss"] for sample in each.at("context", 128).samples]
        assert each.change == difference(long, short)
    assert bare.slowdown == 1.0


@pytest.mark.nightly
def test_intervals_are_over_projects(tmp_path):
    """Texts of one project are alike: more of them must not look like more evidence."""
    who, projects = subject(tmp_path, longest=64, count=300), ("a", "a", "a", "b", "c", "d")
    who = who.reading(HeldOutTexts(torch.stack(who.passages(6)), projects))
    tasks = [Context(samples=6), Repetition(samples=6), Damage(samples=6), Perplexity(samples=6)]
    made = measure_candidates(who, ["yarn", "window"], [64], Store(tmp_path / "s"), tasks=tasks)
    for row in (row for one in made.candidates for row in one.rows):
        name, values = ("bits_per_byte", "bytes") if row.task.name == "perplexity" else ("loss", "")
        weights = [sample[values] for sample in row.samples] if values else None
        found = mean([sample[name] for sample in row.samples], weights, groups=projects)
        assert row.numbers[name].value == found.value
        assert row.numbers[name].high == pytest.approx(found.high)
        assert found.of == 6
    base, yarn, _ = made.candidates
    losses = {one.line: [sample["loss"] for sample in one.at("context", 64).samples] for one in made.candidates}
    short = [sample["loss"] for sample in base.at("context", TRAINED).samples]
    assert yarn.change == difference(losses["yarn"], short, groups=projects)
    assert made.lead_over(base) == difference(losses["bare"], losses[made.best.line], groups=projects)
    curves = [[sample["curve"][0] for sample in one.at("context", 64).samples] for one in (yarn, base)]
    assert changes_by_position(made, yarn)[0].change == difference(*curves, groups=projects)
    assert yarn.change != difference(losses["yarn"], short)


def test_damage_is_measured_once_and_a_window_keeps_less(made):
    bare, _, window = made.candidates
    assert [row.length for row in bare.rows if row.task.name == "damage"] == [TRAINED]
    assert bare.at("damage", TRAINED).numbers["loss"].value == 0
    assert window.cache_bytes < bare.cache_bytes
    assert made.best.change.value == min(each.change.value for each in made.candidates)


def estimate(value, half=0.01):
    return Estimate(value, value - half, value + half, 8)


@pytest.mark.parametrize(
    ("change", "damage", "keys", "words"),
    [
        (estimate(2.0), None, None, "breaks"),
        (estimate(0.1, half=0.05), None, None, "worse"),
        (estimate(-3e-8, half=1e-8), None, None, "unchanged"),  # rounding
        (estimate(3e-8, half=1e-8), None, None, "unchanged"),
        (estimate(0.3, half=0.1), None, None, "worse"),  # it may be above the threshold of a break or below
        (estimate(0.005), estimate(0.0), estimate(0.0), "unchanged, misses passkeys"),
        (estimate(-0.1), estimate(0.0), estimate(1.0), "better with context, finds passkeys"),
        (estimate(-0.1), estimate(0.3), estimate(0.5), "better with context, damages short texts (+0.30)"),
        (estimate(0.005), estimate(0.03, half=0.02), None, "unchanged"),  # the damage may be too small to matter
        (Estimate(-0.1, -math.inf, math.inf, 1), None, None, "not enough texts to tell"),  # one passage shows nothing
        (estimate(-0.1, half=math.inf), None, None, "too few projects to tell"),  # eight texts, and no interval
        (estimate(2.0, half=math.inf), None, estimate(1.0), "too few projects to tell, finds passkeys"),
        (estimate(0.1, half=0.2), None, None, "not enough texts to tell"),
        (estimate(-0.1, half=0.2), None, None, "not enough texts to tell"),  # the loss may be much lower
    ],
)
def test_verdicts(change, damage, keys, words):
    assert verdict(change, damage, keys, estimate(-0.05)).words == words


@pytest.mark.parametrize(("found", "words"), [(0.0, "misses what is far"), (0.12, "finds 12% of what is far")])
def test_what_is_far_is_found_in_part(found, words):
    """No judgement that a share beside it would contradict."""
    assert verdict(estimate(0.005), None, estimate(found, half=0.1), what=FAR_FACTS).words == f"unchanged, {words}"


@pytest.mark.parametrize(
    ("over_window", "words"),
    [
        (estimate(-0.05), "better with context"),
        (estimate(-0.005), "no better than a window"),  # it may be equal
        (estimate(0.01), "no better than a window"),
        (NO_ESTIMATE, "lower loss"),  # the text is no longer than the window
    ],
)
def test_what_a_window_reaches_too_is_no_use_of_the_context(over_window, words):
    assert verdict(estimate(-0.1), None, None, over_window).words == words
    assert verdict(estimate(0.1, half=0.05), None, None, over_window).words == "worse"


def test_the_last_tokens_have_nearly_a_trained_length_before_them(tmp_path):
    """One reading of the last 32 tokens: of 16 that are scored, the last 4 have seen 28 and more."""
    who = subject(tmp_path, longest=128)
    made = measure_candidates(who, ["streaming"], [128], Store(tmp_path / "s"), tasks=[Context(samples=3)])
    ends = {"bare": [], "streaming": []}
    for ids in who.passages(3):
        with torch.no_grad():
            logits = who.model(input_ids=ids[None, -TRAINED:-1]).logits[0, -4:]
            ends["bare"].append(float(cross_entropy(logits.double(), ids[-4:])))
            with who.under(made.candidates[1].extension):
                logits = who.model(input_ids=ids[None, :-1]).logits[0, -4:]
                ends["streaming"].append(float(cross_entropy(logits.double(), ids[-4:])))
    bare, streaming = made.candidates
    for one, length in ((bare, TRAINED), (streaming, 128)):
        assert [each["end_loss"] for each in one.at("context", length).samples] == pytest.approx(
            ends[one.line], rel=1e-4
        )
    assert streaming.over_window == pytest.approx(difference(ends["streaming"], ends["bare"]), abs=1e-5)


def test_the_last_tokens_alone_are_the_standard(tmp_path):
    """What every user has: the base model on 32 tokens, at every length; before them it finds nothing."""
    who = subject(tmp_path, longest=256)
    made = measure_candidates(
        who, ["streaming"], [128, 256], Store(tmp_path / "s"), tasks=[Context(samples=3, questions=4)]
    )
    alone, base = made.last_alone, made.base
    assert alone.line == "last 32 alone"
    assert alone.change[:3] == (0.0, 0.0, 0.0)
    for length in (TRAINED, 128, 256):
        assert alone.at("context", length).numbers["loss"] == base.at("context", TRAINED).numbers["loss"]
    found = base.at("context", 256).numbers["far"]
    assert alone.at("context", 256).numbers["far"] == share(0, found.of)
    assert alone.verdict.words == "unchanged, misses what is far"
    written = as_json(made)["last_alone"]["numbers"]["128"]
    assert written["loss"] == alone.at("context", 128).numbers["loss"]._asdict()
    within = measure_candidates(who, ["streaming"], [TRAINED], Store(tmp_path / "s"), tasks=[Context(samples=3)])
    assert within.last_alone is None  # all texts are so short
    more = measure_candidates(who, [], [256], Store(tmp_path / "s"), tasks=[Context(samples=3, last=99)])
    assert more.last_alone is None  # a text so short has not all tokens that are scored


@pytest.mark.parametrize(
    ("found", "asked", "words"),
    [
        (4, 4, "unchanged, finds passkeys"),
        (0, 4, "unchanged, misses passkeys"),
        (3, 3, "unchanged"),  # by Wilson's interval it may be 44 %
        (3, 4, "unchanged"),
        (15, 20, "unchanged, finds passkeys"),
        (5, 20, "unchanged, misses passkeys"),
    ],
)
def test_passkeys_are_judged_by_their_interval(found, asked, words):
    assert verdict(estimate(0.005), estimate(0.0), share(found, asked)).words == words


def test_passkeys_are_part_of_the_verdict(tmp_path):
    tasks = [Context(samples=2), Passkey(samples=2, filler="grass")]
    made = measure_candidates(subject(tmp_path, longest=128), [], [128], Store(tmp_path / "s"), tasks=[tasks[0]])
    assert "passkey" not in made.candidates[0].verdict.words
    who = subject(tmp_path, longest=200)
    with pytest.raises(rw.DoesNotFit, match=r"^passkey: length must be at least"):  # 32 tokens hold no such prompt
        measure_candidates(who, [], [200], Store(tmp_path / "s"), tasks=tasks)


@dataclass(frozen=True, kw_only=True)
class Greedy(Context):
    """Memory does not suffice from a length on, but under a window."""

    most: ClassVar[int] = 100

    def measure(self, subject, length, sample):
        if length >= self.most and handle_of(subject.model).extension.reach is None:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().measure(subject, length, sample)


@pytest.mark.nightly
def test_a_candidate_that_runs_out_of_memory_comes_last(tmp_path):
    who = subject(tmp_path, longest=128)
    made = measure_candidates(
        who, ["yarn", "window"], [64, 128], Store(tmp_path / "s"), tasks=[Greedy(samples=2), *TASKS[1:]]
    )
    bare, yarn, window = made.candidates
    for each in (bare, yarn):
        assert each.verdict.words == "out of memory at 128 tokens"
        assert each.failed("context", 128) == "out of memory"
        assert each.at("context", 128) is None
        assert each.at("context", 64).numbers["loss"].of == 2
        assert math.isnan(each.change.value)
    assert made.best is window
    assert window.failures == ()
    assert window.change.of == 2
    assert math.isnan(window.slowdown)  # relative to the base model, which has no time


@pytest.mark.nightly
def test_no_comparison_without_the_base_model_at_its_trained_length(tmp_path, monkeypatch):
    monkeypatch.setattr(Greedy, "most", TRAINED)
    who = subject(tmp_path, longest=64)
    with pytest.raises(rw.DoesNotFit, match=r"enough to read 32 tokens.*, got 'out of memory'"):
        measure_candidates(who, ["window"], [64], Store(tmp_path / "s"), tasks=[Greedy(samples=2)])


def test_the_lead_is_over_the_second_on_the_same_texts(made):
    ordered = sorted(made.candidates, key=lambda each: each.change.value)
    losses = [[sample["loss"] for sample in each.at("context", 128).samples] for each in ordered[:2]]
    assert made.lead_over(ordered[1]).value == pytest.approx(sum(losses[1]) / 3 - sum(losses[0]) / 3)
    assert made.lead_over(ordered[1]).value > 0
    assert made.best is ordered[0]


@dataclass(frozen=True, kw_only=True)
class Failing(Context):
    """Losses that are no numbers, on the second text alone: from a length on, or under what."""

    value: ClassVar[float] = math.nan
    least: ClassVar[int] = 100
    under: ClassVar[tuple[str, ...]] = ("frequencies",)

    def measure(self, subject, length, sample):
        handle = handle_of(subject.model)
        slots = ["bare"] if handle is None or handle.extension == rw.Extension() else handle.extension.specs
        hit = sample == 1 and length >= self.least and any(slot in slots for slot in self.under)
        result = super().measure(subject, length, sample)
        return {**result, "loss": self.value, "curve": [self.value] * 64} if hit else result


FAILS = [(math.nan, "NaN loss"), (math.inf, "infinite loss")]


def failing(path, monkeypatch, value, under=("frequencies",), least=100, lines=("yarn", "window:window=8")):
    for name, setting in {"value": value, "under": under, "least": least}.items():
        monkeypatch.setattr(Failing, name, setting)
    who = subject(path, longest=128)
    return measure_candidates(who, lines, [64, 128], Store(path / "s"), tasks=[Failing(samples=3), *TASKS[1:]])


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(("value", "kind"), FAILS)
def test_a_loss_that_is_no_number_has_its_own_verdict_and_no_rank(tmp_path, monkeypatch, value, kind):
    made = failing(tmp_path, monkeypatch, value)
    bare, yarn, window = made.candidates
    assert yarn.verdict == (kind, f"{kind} at 128 tokens")
    assert not yarn.has_loss
    assert made.best in (bare, window)
    assert yarn not in made.ties
    assert not yarn.holds
    for other in (bare, window):
        assert kind not in other.verdict.words


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(("value", "kind"), FAILS)
def test_a_base_model_without_a_loss_at_the_target_is_no_rival(tmp_path, monkeypatch, value, kind):
    made = failing(tmp_path, monkeypatch, value, under=("bare",))
    assert made.base.verdict.kind == kind
    assert made.best is not made.base
    assert made.base not in made.ties


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(("value", "kind"), FAILS)
def test_no_comparison_with_a_base_model_that_has_no_loss_where_it_was_trained(tmp_path, monkeypatch, value, kind):
    with pytest.raises(rw.DoesNotFit, match=rf"loss of the base model must be finite at 32 tokens.*got '{kind}'"):
        failing(tmp_path, monkeypatch, value, under=("bare",), least=TRAINED)


@pytest.mark.parametrize(("value", "kind"), FAILS)
def test_harm_that_is_no_number_is_said(value, kind):
    nothing = Estimate(value, math.nan, math.nan, 4)
    said = verdict(estimate(-0.1), nothing, None, estimate(-0.05)).words
    assert said == f"better with context, {kind} on short texts"


def test_one_name_has_one_meaning(tmp_path):
    """Two lines of one name are the same line, or refused; the base model's name is nobody's."""
    who, store = subject(tmp_path, longest=64), Store(tmp_path / "s")
    window, yarn = (read_line(line)._replace(text="mine") for line in ("window:window=8", "yarn"))
    made = measure_candidates(who, [window, window], [64], store, tasks=[Context(samples=2)])
    assert [one.line for one in made.candidates] == ["bare", "mine"]
    with pytest.raises(rw.Conflict, match="two different extensions have the name 'mine'; name one of them otherwise"):
        measure_candidates(who, [window, yarn], [64], store, tasks=[Context(samples=2)])
    with pytest.raises(
        rw.InvalidValue, match="extensions must be names other than 'bare', which is that of the base model"
    ):
        measure_candidates(who, [yarn._replace(text="bare")], [64], store, tasks=[Context(samples=2)])


def of_the_same_tokens(who, ids, count):
    """The base model's mean loss of the last tokens, in pieces of 4 that end a text of at most the trained length."""
    losses = []
    for end in range(len(ids), len(ids) - count, -4):
        begin = max(end - 4, len(ids) - count)
        with torch.no_grad():
            logits = who.model(input_ids=ids[None, max(0, end - TRAINED) : end - 1]).logits[0, begin - end :]
        losses.append(cross_entropy(logits.double(), ids[begin:end], reduction="none"))
    return float(torch.cat(losses).mean())


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(
    ("last", "scored", "by_window"),
    [
        (1, 1, False),
        (16, 16, False),
        (31, 31, False),
        (32, 32, True),
        (40, 40, True),
        (127, 127, True),
        (999, 127, True),
    ],
)
def test_a_change_is_of_the_same_tokens_however_many_are_scored(tmp_path, last, scored, by_window):
    """A text of 32 tokens has 31 that can be scored; more are compared under a window of 32."""
    who = subject(tmp_path, longest=128)
    tasks = [Context(samples=3, last=last)]
    made = measure_candidates(who, ["yarn", "window:window=8"], [64, 128], Store(tmp_path / "s"), tasks=tasks)
    assert made.by_window == by_window
    base = made.base.at("context", TRAINED).samples
    same = [of_the_same_tokens(who, ids, scored) for ids in who.passages(3)]
    at_once = [each["loss"] for each in base]
    if by_window:
        assert [each["window_loss"] for each in base] == pytest.approx(same, abs=1e-5)
    else:
        assert not any("window_loss" in each for each in base)
        ends = [each["end_loss"] for each in base]
        assert ends == pytest.approx([of_the_same_tokens(who, ids, min(last, 4)) for ids in who.passages(3)], abs=1e-5)
    for one in made.candidates:
        long = [sample["loss"] for sample in one.at("context", 128).samples]
        assert one.change == pytest.approx(difference(long, same if by_window else at_once), abs=1e-5)
        mine, theirs = (
            (long, same) if by_window else ([each["end_loss"] for each in one.at("context", 128).samples], ends)
        )
        assert one.over_window == pytest.approx(difference(mine, theirs), abs=1e-5)
        assert change_at(made, one, 128) == one.change
        between = change_at(made, one, 64)
        tokens = min(last, 63)  # at 64; the base model read as many at 128, at 32, or at neither
        known = {min(last, 31): at_once, scored: same} | ({} if by_window else {tokens: at_once})
        if tokens in known:
            middle = [sample["loss"] for sample in one.at("context", 64).samples]
            assert between == pytest.approx(difference(middle, known[tokens]), abs=1e-5)
        else:
            assert between is NO_ESTIMATE
        assert change_at(made, one, TRAINED).of == 3
    assert change_at(made, made.base, TRAINED)[:3] == (0.0, 0.0, 0.0)


def test_behind_a_window_a_whole_trained_length_is_read(tmp_path, monkeypatch):
    who, read = subject(tmp_path, longest=256), []

    def reading(model, ids):
        read.append(ids.shape[1])
        return token_losses(model, ids)

    monkeypatch.setattr("ropewalk.measure.tasks.context.token_losses", reading)
    assert window_loss(who, 0, TRAINED, 3) > 0
    assert set(read) == {TRAINED}


def test_within_the_trained_length_there_is_no_other_standard(tmp_path):
    who = subject(tmp_path, longest=TRAINED)
    made = measure_candidates(who, ["yarn"], [TRAINED], Store(tmp_path / "s"), tasks=[Context(samples=3, last=999)])
    assert not made.by_window
    assert made.base.change[:3] == (0.0, 0.0, 0.0)
