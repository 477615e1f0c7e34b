"""A leaderboard: rounds that drop what is hopeless, columns that are compared, costs that are computed."""

import math
from dataclasses import replace

import pytest

import ropewalk as rw
from ropewalk import inspect
from ropewalk.errors import DoesNotFit
from ropewalk.extension.notation import BARE
from ropewalk.extension.parsing import Line, read_line
from ropewalk.measure.comparison.halving import CONTEXTS, NOTHING, NUMBERING, TRAINED_WITH, entrants
from ropewalk.measure.comparison.race import FrontColumns, Race, TimeIsUp, right_of, run_race, tasks_of
from ropewalk.measure.comparison.runner import FAILED, OUT_OF_MEMORY
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.verdict import deployment, key_share
from ropewalk.measure.metrics.intervals import share
from ropewalk.measure.tasks import Context, Damage, Needle

from measure.report.made_up import comparison
from measure.subjects import TRAINED, model, subject

pytestmark = pytest.mark.nightly

TARGET = 64


@pytest.fixture(scope="module")
def who(tmp_path_factory):
    return subject(tmp_path_factory.mktemp("board"), longest=TARGET, count=400)


def losses(extension, sample):
    """Made up: pi is hopeless, ntk is as bad by its mean but only by chance, abf shows it in the second round."""
    text = (2.0, 3.5, 2.7, 4.1)[sample % 4]
    if extension == rw.parse("pi:factor=2"):
        return text + 1.0 + 0.01 * (sample % 2)
    if extension == rw.parse("ntk", trained_len=TRAINED, target_len=TARGET):
        return text + (2.0, -1.0, 2.5, -1.5)[sample % 4]
    if extension == rw.parse("abf", trained_len=TRAINED, target_len=TARGET):
        return text + (0.1, 0.5, 0.1, 0.5)[sample % 4]
    return text + 0.0001 * (len(str(extension)) % 50)


def made_up(subject, cells, seen=None):
    """Measures nothing: numbers by formula."""
    for cell in cells:
        if seen is not None:
            seen.append(cell)
        loss = losses(cell.extension, cell.sample)
        result = {
            "context": {"loss": loss, "accuracy": 0.5, "bits_per_byte": 1.0, "curve": [loss], "hits": [0.5]},
            "damage": {"loss": 0.001, "kl": 0.1, "agreement": 0.9},
        }[cell.task.name]
        yield cell, {"result": result, "seconds": 1.0}


def raced(who, path, *, more=(), tasks=None, measuring=made_up, **how):
    tasks = tasks or (Context(samples=24), Damage(samples=4))
    race = Race(
        subject=who, target_len=TARGET, store=Store(path / "cells"), tasks=tasks, measuring=measuring, **how
    )  # fmt: skip
    return run_race(race, [read_line(line) for line in more])


@pytest.fixture(scope="module")
def board(who, tmp_path_factory):
    return raced(who, tmp_path_factory.mktemp("whole"), more=["rerope+log_n"])


def test_what_is_hopeless_is_dropped_at_once_and_said_so(board):
    pi = next(drop for drop in board.dropped if drop.line == "pi")
    assert (pi.round, pi.texts, pi.threshold) == (1, 4, 0.05)
    assert pi.behind.low > 0.05
    assert 0.9 < pi.behind.value < 1.01
    assert pi.loss == pytest.approx((2.0 + 3.5 + 2.7 + 4.1) / 4 + 1.005)


def test_what_four_texts_do_not_show_eight_do(board):
    abf = next(drop for drop in board.dropped if drop.line == "abf")
    assert (abf.round, abf.texts) == (2, 8)


def test_what_is_behind_by_chance_reads_all_texts(board):
    """Of ntk the mean is half a nat behind, more than of abf, but its texts do not agree."""
    ntk = next(entry for entry in board.entries if entry.candidate.line == "ntk")
    assert len(ntk.losses) == 24
    assert ntk.behind.value > 0.4
    assert ntk.behind.low < 0.05


def test_rounds_and_lines(board):
    assert board.complete
    assert [one.texts for one in board.rounds] == [4, 8, 24]
    first, second, third = (one.lines for one in board.rounds)
    by_round = [drop.round for drop in board.dropped]
    assert (first - second, second - third) == (by_round.count(1), by_round.count(2))
    assert set(by_round) == {1, 2}
    assert len(board.entries) == third
    entered = {entry.candidate.line for entry in board.entries} | {drop.line for drop in board.dropped}
    assert {BARE, "yarn", "window", "rerope", "rerope+log_n"} <= entered
    assert not entered & {out.name for out in board.left_out}


def test_a_line_that_is_not_measured_is_named_with_the_reason(who):
    """Also one of the caller's: the same as a preset, the same as another one of his, or nothing at all."""
    more = [
        Line(name, (), rw.parse(text, target_len=TARGET, trained_len=TRAINED))
        for name, text in {"mine": "yarn", "a": "rerope+log_n", "b": "rerope+log_n", "plain": "rope"}.items()
    ]
    racing, left_out = entrants(who, inspect(who.model, target_len=TARGET), more)
    why = {out.name: out.why for out in left_out}
    assert why["mine"].endswith("the same as yarn")
    assert why["b"].endswith("the same as a")
    assert why["plain"].endswith("it is the model without an extension")
    assert "a" in {one.line.text for one in racing}
    assert not {one.line.text for one in racing} & set(why)


def test_the_last_round_has_all_samples_of_every_task(who, tmp_path):
    """Rounds follow the texts of `context`; another task may have more samples."""
    found = raced(who, tmp_path, tasks=(Context(samples=8), Damage(samples=40)))
    assert found.planned == (4, 8)
    by_task = {row.task.name: row.samples for row in found.comparison.base.rows}
    assert (len(by_task["context"]), len(by_task["damage"])) == (8, 40)


def test_sorted_by_loss_and_compared_text_by_text(board):
    means = [sum(entry.losses) / len(entry.losses) for entry in board.entries]
    assert means == sorted(means)
    assert board.entries[0].behind.value == 0
    best = board.entries[0].losses
    for entry in board.entries:
        by_hand = sum(a - b for a, b in zip(entry.losses, best, strict=True)) / 24
        assert entry.behind.value == pytest.approx(by_hand)


def test_the_report_is_of_the_lines_that_are_left(board):
    assert {one.line for one in board.comparison.candidates} == {entry.candidate.line for entry in board.entries}


def test_resumed_it_is_uninterrupted(who, board, tmp_path):
    """Ended by an error in each round; what is stored is not measured again."""
    seen, first = [], []

    def failing(subject, cells):
        for number, finished in enumerate(made_up(subject, cells, seen)):
            if number == 50:
                raise KeyboardInterrupt
            yield finished

    stops = 0
    while True:
        try:
            again = raced(who, tmp_path, more=["rerope+log_n"], measuring=failing)
        except KeyboardInterrupt:
            stops += 1
            first += [seen.pop()]  # was being measured
            continue
        break
    assert stops > 5
    assert len(seen) == len(set(seen))
    assert [(entry.candidate.line, entry.losses, entry.behind) for entry in again.entries] == [
        (entry.candidate.line, entry.losses, entry.behind) for entry in board.entries
    ]
    assert (again.dropped, again.left_out, again.rounds) == (board.dropped, board.left_out, board.rounds)


def test_when_time_is_up_the_last_whole_round_counts(who, board, tmp_path):
    calls = []

    def watch(*cell):
        calls.append(cell)
        if len(calls) > 20:
            raise TimeIsUp

    short = raced(who, tmp_path, more=["rerope+log_n"], progress=watch)
    assert [one.texts for one in short.rounds] == [4]  # the first is always finished
    assert not short.complete
    assert {len(entry.losses) for entry in short.entries} == {4}
    assert [drop for drop in board.dropped if drop.round == 1] == list(short.dropped)
    assert raced(who, tmp_path, more=["rerope+log_n"]).dropped == board.dropped


def test_too_few_texts_are_refused_before_anything_is_measured(who, tmp_path):
    with pytest.raises(DoesNotFit, match="must be one with 500 held-out documents"):
        raced(who, tmp_path, tasks=(Context(samples=500),), measuring=None)


def test_who_runs_out_of_memory_is_left_out(who, tmp_path):
    yarn = rw.parse("yarn:factor=2")

    def measuring(subject, cells):
        for cell, result in made_up(subject, cells):
            yield cell, {FAILED: OUT_OF_MEMORY} if cell.extension == yarn and cell.length == TARGET else result

    found = raced(who, tmp_path, measuring=measuring)
    assert [(out.name, out.why) for out in found.left_out if out.name == "yarn"] == [
        ("yarn", "out of memory at 64 tokens")
    ]
    assert "yarn" not in {entry.candidate.line for entry in found.entries}


@pytest.mark.parametrize(("value", "why"), [(math.nan, "NaN loss"), (math.inf, "infinite loss")])
@pytest.mark.parametrize("broken", ["yarn:factor=2", ""], ids=["an extension", "the base model"])
def test_who_has_no_loss_is_left_out_and_protects_nobody(who, board, tmp_path, value, why, broken):
    extension = rw.parse(broken) if broken else rw.Extension()

    def measuring(subject, cells):
        for cell, result in made_up(subject, cells):
            hit = cell.extension == extension and cell.length == TARGET and cell.sample == 1
            yield cell, {**result, "result": {**result["result"], "loss": value}} if hit else result

    found = raced(who, tmp_path, more=["rerope+log_n"], measuring=measuring)
    name = "yarn" if broken else BARE
    assert [(out.name, out.why) for out in found.left_out if why in out.why] == [(name, f"{why} at 64 tokens")]
    assert name not in {entry.candidate.line for entry in found.entries}
    assert {drop.line for drop in found.dropped} == {drop.line for drop in board.dropped}
    assert all(math.isfinite(entry.behind.value) for entry in found.entries)


def test_harm_that_is_no_number_protects_nobody(who, tmp_path):
    """Nothing is below NaN: others must still count as no worse than a line with such harm."""
    pi = rw.parse("pi:factor=2")

    def measuring(subject, cells):
        for cell, result in made_up(subject, cells):
            hit = cell.extension == pi and cell.task.name == "damage"
            yield cell, {**result, "result": {**result["result"], "loss": math.nan}} if hit else result

    assert "pi" in {drop.line for drop in raced(who, tmp_path, measuring=measuring).dropped}


def test_with_the_context_alone_the_other_columns_are_empty(who, tmp_path):
    found = raced(who, tmp_path, tasks=(Context(samples=2),))
    assert {(entry.right, entry.harm) for entry in found.entries} == {(None, None)}


def test_answers_of_all_tasks_that_ask_are_counted_together():
    made = comparison(["yarn"], rates=[2.0])
    yarn = made.candidates[1]
    assert right_of(yarn, made) == share(4, 4)
    more = [
        row._replace(task=Needle(samples=4), numbers={"right": share(1, 2)}) for row in yarn.rows if row.task.scored
    ]
    assert right_of(replace(yarn, rows=(*yarn.rows, *more)), made) == share(5, 6)


def test_tasks_that_the_columns_need():
    assert [(task.name, task.samples) for task in tasks_of(24)] == [("context", 24), ("passkey", 24), ("damage", 12)]


# Who takes part.


def test_why_presets_are_left_out(who):
    taking_part, left_out = entrants(who, inspect(model(), target_len=TARGET))
    why = {out.name: out.why for out in left_out}
    assert why["rope"] == NOTHING
    assert why["alibi"] == why["hwfa"] == TRAINED_WITH
    assert why["nbce"] == CONTEXTS
    assert why["pose"] == NUMBERING
    assert why["gqa"] == "kv_heads must be a divisor of the model's 2 key heads, got 8"
    assert all(why.values())
    names = [entrant.line.text for entrant in taking_part]
    assert {"yarn", "pi", "streaming", "dynamic_yarn", "self_extend", "log_n"} <= set(names)
    assert len({entrant.extension for entrant in taking_part}) == len(names)
    assert not set(names) & set(why)
    assert {entrant.line.text for entrant in taking_part if entrant.needs == "tuning"} >= {"pi", "abf"}


def test_lines_of_the_caller_take_part_once(who):
    more = [read_line(line) for line in ("rerope+log_n", "yarn:factor=2", "rope", "pi+log_n")]
    taking_part, _ = entrants(who, inspect(model(), target_len=TARGET), more)
    names = [entrant.line.text for entrant in taking_part]
    assert names[-2:] == ["rerope+log_n", "pi+log_n"]  # yarn is that line already
    assert taking_part[-1].needs == "tuning"


def test_what_the_caller_names_is_measured_to_the_end_whatever_presets_are_left_out(who, tmp_path):
    """A preset that must be trained with is left out by itself, and takes part where it is named."""
    found = raced(who, tmp_path, more=["alibi"], tasks=(Context(samples=24), Damage(samples=4)))
    assert "alibi" not in {out.name for out in found.left_out}
    assert "alibi" in {entry.candidate.line for entry in found.entries} | {drop.line for drop in found.dropped}


@pytest.mark.parametrize("name", ["yarn", "pose", "alibi"])
def test_the_name_of_a_preset_is_for_that_preset(who, tmp_path, name):
    """Else one of the two would disappear, at once or after the first round."""
    line = read_line("rerope:window=8+log_n")._replace(text=name)
    race = Race(subject=who, target_len=TARGET, store=Store(tmp_path / "cells"), tasks=(Context(samples=4),))
    with pytest.raises(rw.Conflict, match=f"'{name}' is a preset, which takes part in every leaderboard"):
        run_race(race, [line])


# Costs.


def test_pairs_by_hand():
    inspection = inspect(model(), target_len=TARGET)
    whole = TARGET * (TARGET + 1) / 2
    windowed = sum(min(row + 1, 8) for row in range(TARGET))
    for line in ("yarn:factor=2", "rerope:window=8", "log_n"):
        assert key_share(rw.parse(line), inspection) == 1
    assert key_share(rw.parse("window:window=8"), inspection) == windowed / whole
    one_layer = rw.Extension(layers={0: rw.parse("window:window=8")})
    assert key_share(one_layer, inspection) == pytest.approx((windowed + whole) / 2 / whole)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("yarn:factor=2", "static"),
        ("window:window=8", "static"),
        ("dynamic_yarn", "plugin"),
        ("rerope:window=8+log_n", "plugin"),
        ("xpos", "here"),
    ],
)
def test_where_extensions_run(who, line, where):
    assert deployment(who, rw.parse(line), TARGET) == where


def test_the_model_as_it_is_runs_everywhere(who):
    assert deployment(who, rw.Extension(), TARGET) == "static"


# FrontColumns.

MIDDLE = FrontColumns("middle", 2.0, right=0.5, harm=0.1, key_share=0.5, cache_bytes=100, deployment="plugin")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),  # no better in anything
        ({"loss": 1.98}, True),
        ({"loss": 1.997}, False),  # the same to 0.01
        ({"right": 0.6}, True),
        ({"harm": 0.05}, True),
        ({"harm": 0.09}, False),  # too small to report
        ({"key_share": 0.4}, True),
        ({"cache_bytes": 90}, True),
        ({"cache_bytes": 96}, False),  # as large, within a twentieth
        ({"loss": 1.0, "right": 0.4}, False),
        ({"loss": 1.0, "harm": 0.13}, False),
        ({"loss": 1.0, "harm": 0.11}, True),
        ({"loss": 1.0, "key_share": 0.6}, False),
        ({"loss": 1.0, "cache_bytes": 106}, False),
        ({"loss": 1.0, "cache_bytes": 104}, True),
        ({"loss": 2.2, "cache_bytes": 1}, False),
    ],
)
def test_who_beats_whom(change, expected):
    assert MIDDLE._replace(**change).beats(MIDDLE) == expected


def test_who_runs_wherever_another_runs():
    easy, hard = MIDDLE._replace(deployment="static"), MIDDLE._replace(deployment="here")
    assert easy.as_easy(MIDDLE)
    assert MIDDLE.as_easy(MIDDLE)
    assert MIDDLE.as_easy(hard)
    assert not MIDDLE.as_easy(easy)
    assert not hard.as_easy(MIDDLE)


def test_on_the_front_is_what_none_beats(board):
    columns = [entry.columns for entry in board.entries]
    for entry in board.entries:
        beating = [other for other in columns if other.beats(entry.columns)]
        assert bool(entry.beaten_by) == bool(beating)
        assert entry.beaten_in_class == any(other.as_easy(entry.columns) for other in beating)
    assert any(entry.beaten_by for entry in board.entries)
