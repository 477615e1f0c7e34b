"""`ropewalk compare`, as it is called."""

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest
from measured_folder import small_folder

from ropewalk.cli.main import run
from ropewalk.measure import compare as comparing
from ropewalk.measure.comparison import plan, runner
from ropewalk.measure.comparison.store import Store
from ropewalk.train.small_models import ModelShape, new_small_model

from train.texts import tokenizer


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return small_folder(tmp_path_factory.mktemp("compare"), trained_len=128)


def line(place, out, *more):
    given = ["--lengths", "256", "--samples", "2", "--corpus", f"folder:{place / 'texts'}", "-o", str(out), *more]
    return ["compare", str(place / "model"), "yarn", "window:window=32", *given]


def compare(place, out, *more):
    return run(line(place, out, *more))


@pytest.fixture(scope="module")
def whole(place, tmp_path_factory):
    """A report that was made in one go."""
    out = tmp_path_factory.mktemp("whole")
    assert compare(place, out) == 0
    return out


def measured(out):
    """Every number of a report but for how long it took."""
    found = json.loads((out / "results.json").read_text())["candidates"]
    return [(each["line"], row["task"], row["length"], row["samples"]) for each in found for row in each["rows"]]


def test_a_table_a_report_and_advice(place, tmp_path, capsys):
    assert compare(place, tmp_path / "report") == 0
    said = capsys.readouterr().out
    results = json.loads((tmp_path / "report" / "results.json").read_text())
    assert [each["line"] for each in results["candidates"]] == ["bare", "yarn", "window:window=32"]
    assert results["lengths"] == [128, 256]
    assert "Report:" in said
    assert "last 128 alone" in said
    advice = " ".join(said.rpartition("\n\n")[2].split())
    assert re.search("To use what is farther away|finds what is farther|measure more texts|Use [ynw]", advice)
    assert (tmp_path / "report" / "report.html").stat().st_size > 20_000


@pytest.mark.nightly
def test_open_shows_the_page(place, whole, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("webbrowser.open_new_tab", lambda address: shown.append(address) or True)
    shutil.copy(whole / "cells.sqlite", tmp_path)
    assert compare(place, tmp_path, "--open") == 0
    assert shown == [(tmp_path / "report.html").as_uri()]
    assert json.loads((tmp_path / "results.json").read_text())["made"]["model"] == "model"


def test_the_same_command_measures_nothing_again(place, whole, monkeypatch):
    first = json.loads((whole / "results.json").read_text())
    monkeypatch.setattr(runner, "result_of", None)  # would fail where it is called
    assert compare(place, whole) == 0
    assert json.loads((whole / "results.json").read_text())["candidates"] == first["candidates"]


def test_the_base_model_is_measured_once(place, whole, monkeypatch, tmp_path):
    shutil.copy(whole / "cells.sqlite", tmp_path)
    monkeypatch.setattr(runner, "result_of", None)
    asked = line(place, tmp_path)
    asked.insert(2, "bare")
    assert run(asked) == 0
    assert measured(tmp_path) == measured(whole)


def test_tasks_are_named_with_their_values(place, tmp_path, capsys):
    assert compare(place, tmp_path, "--tasks", "stream:samples=1,every=1,back=1") == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(task["name"], task["samples"]) for task in results["tasks"]] == [("context", 2), ("stream", 1)]
    assert "stream: right" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_cluster_measures_where_it_is_named(place, whole, tmp_path, monkeypatch):
    asked = []

    def on_cluster(address):
        asked.append(address)
        return runner.measure_here

    monkeypatch.setattr("ropewalk.measure.compare.measure_on_cluster", on_cluster)
    monkeypatch.setattr("ropewalk.measure.compare.write_report", lambda *_, **__: "nowhere")
    shutil.copy(whole / "cells.sqlite", tmp_path)
    assert compare(place, tmp_path, "--ray", "head:6379") == 0
    assert asked == ["head:6379"]


def same_figures(one, other):
    """Within rounding, in lists of records too."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_figures, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_figures(one[name], other[name]) for name in one)
    return one == pytest.approx(other, abs=1e-5) if isinstance(one, float) else one == other


@pytest.mark.nightly
def test_several_processes_measure_the_same(place, whole, tmp_path):
    assert compare(place, tmp_path, "--workers", "2") == 0
    for (*one, ours), (*other, theirs) in zip(measured(tmp_path), measured(whole), strict=True):
        assert one == other
        assert [each.keys() for each in ours] == [each.keys() for each in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert same_figures(a, b)


KILLED = """
import os, signal
from ropewalk.cli.main import run
from ropewalk.measure.comparison import runner
from ropewalk.measure.comparison.store import Store

def dying(*given, measure=runner.result_of, left=[{after}]):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return measure(*given)

runner.result_of = dying
run({line})
"""


@pytest.mark.nightly
def test_killed_it_goes_on_where_it_was(place, whole, tmp_path, monkeypatch):
    code = KILLED.format(line=line(place, tmp_path), after=11)
    environment = {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert len(Store(tmp_path / "cells.sqlite").keys()) == 11
    again = []

    def counted(subject, cell, measure=runner.result_of):
        again.append(cell)
        return measure(subject, cell)

    monkeypatch.setattr(runner, "result_of", counted)
    assert compare(place, tmp_path) == 0
    assert len(again) == len(set(again)) == len(Store(whole / "cells.sqlite").keys()) - 11
    assert measured(tmp_path) == measured(whole)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--lengths", "many"], "--lengths must be"),
        (["--corpus", "nowhere"], "--corpus must be one of"),
        (["--samples", "1"], "greater than or equal to 2, got '1'"),
        (["yern"], "'yern'"),
        (["--tasks", "nedle"], "there is no task 'nedle'; did you mean 'needle'? Known: context"),
        (["--ray", "local", "--device", "cpu"], "give --ray or --device, not both"),
        (["--ray", "local", "--workers", "2"], "give --ray or --workers, not both"),
        (["--device", "bread"], "--device must be a device that torch has here, such as cpu, or auto, got 'bread'"),
    ],
)
def test_errors_are_one_line(place, tmp_path, capsys, given, words):
    assert compare(place, tmp_path, *given) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


# A leaderboard of all presets.


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model that is trained on few tokens, so that twenty lines are measured in seconds."""
    return small_folder(tmp_path_factory.mktemp("all"), texts=40, width=16, inner=32, layers=1, heads=1)


def board_line(small, out, *more):
    corpus = f"all:folder:{small / 'texts'}"
    how = ["--to", "64", "--samples", "5", "--tasks", "context,damage:samples=2", "--corpus", corpus, "-o", str(out)]
    return ["compare", str(small / "model"), "rerope+log_n", "--all", *how, "--workers", "1", *more]


def board_of(out):
    """All numbers of a leaderboard but for times."""
    found = json.loads((out / "leaderboard.json").read_text())
    entries = [{key: value for key, value in entry.items() if key != "slowdown"} for entry in found["entries"]]
    return entries, found["dropped"], found["left_out"], found["rounds"]


@pytest.fixture(scope="module")
def whole_board(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole_board")
    assert run(board_line(small, out)) == 0
    return out


@pytest.mark.nightly
def test_all_presets_in_a_leaderboard(whole_board, small, tmp_path, capsys):
    shutil.copy(whole_board / "cells.sqlite", tmp_path)
    assert run([*board_line(small, tmp_path), "--pictures=svg"]) == 0
    assert "the model must be trained with it from the start" in capsys.readouterr().out
    assert board_of(tmp_path) == board_of(whole_board)
    entries, dropped, left_out, rounds = board_of(whole_board)
    assert [one["texts"] for one in rounds] == [4, 5]
    assert len(entries) + len(dropped) == rounds[0]["lines"] > 15
    assert {entry["line"] for entry in entries} | {drop["line"] for drop in dropped} >= {"bare", "rerope+log_n", "yarn"}
    assert {"alibi", "nbce", "rope"} <= {out["name"] for out in left_out}
    assert all(len(entry["losses"]) == 5 for entry in entries)
    for name in ("leaderboard.md", "leaderboard.svg", "report.html", "results.json"):
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--to", "64", "--lengths", "64"], "--lengths and --to do not go together: both say how long texts are"),
        (["--time", "soon"], "--time must be a time above 0 such as 90s, 20m or 2h, got 'soon'"),
        (["--all", "--lengths", "64"], "--lengths and --all do not go together: a leaderboard has one target length"),
        (["--all", "--to", "many"], "--to must be a whole number such as 512, 32k or 1m, got 'many'"),
        (["--all", "--to", "32"], "--to must be above the trained length (32), got 32"),
        (["--all", "--time", "soon"], "--time must be a time above 0 such as 90s, 20m or 2h, got 'soon'"),
        (["--all", "--samples", "500", "--to", "64"], "ask for fewer samples or a shorter length"),
    ],
)
def test_options_of_a_leaderboard(small, tmp_path, capsys, given, words):
    corpus = f"all:folder:{small / 'texts'}"
    assert run(["compare", str(small / "model"), "--corpus", corpus, "-o", str(tmp_path), *given]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def rounds_line(small, out, *given):
    corpus = f"all:folder:{small / 'texts'}"
    return ["compare", str(small / "model"), "yarn", "--corpus", corpus, "-o", str(out), *given]


@pytest.mark.nightly
def test_a_comparison_that_takes_longer_goes_round_after_round(small, tmp_path, monkeypatch, capsys):
    """A table and the page after each; all of it equals what one round gives."""
    asked = ["--to", "64", "--samples", "4"]
    assert run(rounds_line(small, tmp_path / "once", *asked)) == 0
    capsys.readouterr()
    monkeypatch.setattr(plan, "ONE_ROUND", 0.0)
    assert run(rounds_line(small, tmp_path / "rounds", *asked)) == 0
    said = capsys.readouterr()
    assert [line for line in said.err.splitlines() if line.startswith("ropewalk: after")] == [
        "ropewalk: after 1 text",  # at the longest length, whose table more lengths do not change
        "ropewalk: after 2 texts",
    ]
    assert said.err.count("minus base [95% CI]") == 2
    assert "to the first table, of 1 text, 4 texts in " in said.err
    once, rounds = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("once", "rounds"))
    assert same_figures(
        [one["rows"][0]["samples"] for one in once["candidates"]],
        [one["rows"][0]["samples"] for one in rounds["candidates"]],
    )
    assert "round 4 of 4" not in said.out


@pytest.mark.nightly
def test_a_limit_that_is_too_short_for_the_first_table_is_said(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plan, "ONE_ROUND", 0.0)
    monkeypatch.setattr(plan.Cost, "cell", lambda cost, length: 1000.0)
    assert run(rounds_line(small, tmp_path, "--lengths", "32,64", "--samples", "2", "--time", "60s")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"about \d+ min to the first table, of 1 text; ", said)
    assert re.search(r"the time limit leaves \d+ s; the first table is finished all the same", said)
    base, line = json.loads((tmp_path / "results.json").read_text())["candidates"]
    # Each figure of the first text, as soon as it is known.
    for name, candidate in (("base model", base), ("yarn", line)):
        loss = candidate["rows"][-1]["samples"][0]["loss"]
        assert f"ropewalk: {name} at 64 tokens, text 1: loss {loss:.2f}" in said


@pytest.mark.nightly
def test_the_first_table_may_be_of_shorter_texts(small, tmp_path, monkeypatch, capsys):
    """Extensions are fitted to the longest ones; all of it equals what one round gives."""
    asked = ["--lengths", "32,48,64", "--samples", "2"]
    assert run(rounds_line(small, tmp_path / "once", *asked)) == 0
    capsys.readouterr()
    monkeypatch.setattr(plan, "ONE_ROUND", 0.0)
    monkeypatch.setattr(plan, "FIRST_TABLE_SECONDS", 0.0)
    assert run(rounds_line(small, tmp_path / "rounds", *asked)) == 0
    said = capsys.readouterr().err
    assert said.count("minus base [95% CI]") == 2  # of 48 tokens, and of 64; more lengths do not change it
    assert re.findall(r"loss at (\d+)", said) == ["48", "64"]
    once, rounds = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("once", "rounds"))
    for one, other in zip(once["candidates"], rounds["candidates"], strict=True):
        assert one["extension"] == other["extension"]
        assert same_figures([row["samples"] for row in one["rows"]], [row["samples"] for row in other["rows"]])


def test_a_first_table_of_shorter_texts_may_be_all_there_is(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plan, "ONE_ROUND", 0.0)
    monkeypatch.setattr(plan, "FIRST_TABLE_SECONDS", 0.0)

    def stopped(subject, cell, measure=runner.result_of):
        if cell.length == 64:
            raise KeyboardInterrupt
        return measure(subject, cell)

    monkeypatch.setattr(runner, "result_of", stopped)
    asked = ["--lengths", "32,48,64", "--samples", "2", "--workers", "1"]
    assert run(rounds_line(small, tmp_path, *asked)) == 130
    said = " ".join(capsys.readouterr().out.split())
    assert "texts of 64 tokens, 1 more texts: it was stopped" in said
    assert json.loads((tmp_path / "results.json").read_text())["lengths"] == [32, 48]
    assert (tmp_path / "report.html").is_file()


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["time", "interrupt"])
def test_what_was_measured_is_shown_when_it_ends_early(small, tmp_path, monkeypatch, capsys, how):
    """The last whole round; the same command goes on."""
    monkeypatch.setattr(plan, "ONE_ROUND", 0.0)
    measured, clock = [], [0.0]

    def counted(subject, cell, measure=runner.result_of):
        measured.append(cell)
        if len(measured) == 10:  # in the round of four texts
            if how == "interrupt":
                raise KeyboardInterrupt
            clock[0] += 100.0
        return measure(subject, cell)

    monkeypatch.setattr(runner, "result_of", counted)
    monkeypatch.setattr(comparing.time, "monotonic", lambda: clock[0])
    line = rounds_line(small, tmp_path, "--to", "64", "--samples", "4", "--time", "60s", "--workers", "1")
    assert run(line) == (130 if how == "interrupt" else 0)
    said, noted = capsys.readouterr()
    assert not any(words in noted for words in ("the time limit leaves", "an earlier run"))
    why = "it was stopped" if how == "interrupt" else "time ran out"
    assert f"more texts: {why}" in " ".join(said.split())
    assert ("The same command goes on." in said) == (how == "interrupt")
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["candidates"][0]["rows"][0]["samples"]) == 2
    clock[0], before = 0.0, len(measured)
    assert run(line) == 0
    assert capsys.readouterr().err.count("was measured by an earlier run, and is not measured again") == 1
    kept = {(cell.extension, cell.length, cell.sample) for cell in measured[:before]}
    again = {(cell.extension, cell.length, cell.sample) for cell in measured[before:]}
    assert len(kept & again) <= 1  # only what was being measured


PEAK = """
import resource, sys
from ropewalk.cli.main import run
status = run(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.nightly
@pytest.mark.timeout(1500)  # it takes seven minutes of a core: the first round is always completed
def test_a_default_comparison_at_real_sizes_is_bounded_in_memory(tmp_path):
    """Trained on 32,768 tokens, with 262,144 words: logits of a whole text would need 32 GiB."""
    words = 262_144
    model = new_small_model(ModelShape(vocabulary=words, width=16, inner=16, layers=1, heads=1, trained_len=32_768))
    model.save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    line = ["compare", str(tmp_path / "model"), "--time", "20s", "--workers", "1", "-o", str(tmp_path / "out")]
    command = [sys.executable, "-c", PEAK, *line]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "32k, 64k" in done.stderr
    assert int(re.search(r"peak (\d+)", done.stderr)[1]) < 2048
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["lengths"][:2] == [32_768, 65_536]
    assert {len(row["samples"]) for one in results["candidates"] for row in one["rows"]} >= {1}
