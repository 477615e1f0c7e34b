"""`ropewalk fit`, as it is called."""

import json
from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch
from measured_folder import small_folder
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.measure.metrics.perplexity import key_tokens
from ropewalk.search import fitting

from search.synthetic import TRIALS, so_many_trials as so_many_trials


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return small_folder(tmp_path_factory.mktemp("fit"), texts=160)


def fit(place, out, *more):
    given = ["--to", "128", "--budget", "2h", "--samples", "2", "--judges", "3", "--deployable", "vllm"]
    return run(["fit", str(place / "model"), *given, "--corpus", f"folder:{place / 'texts'}", "-o", str(out), *more])


@pytest.fixture(scope="module")
def answered(place):
    """A folder with an answer, and what was said."""
    with redirect_stdout(StringIO()) as said:
        assert fit(place, place / "out", "--save") == 0
    return place / "out", said.getvalue()


@pytest.mark.nightly
def test_an_answer_with_its_evidence_and_what_to_load(place, answered):
    out, said = answered
    assert "Written: " in said
    assert "vllm serve" in said
    extension = rw.Extension.from_json((out / "extension.json").read_text())
    results = json.loads((out / "results.json").read_text())
    assert results["goal"]["deployable"] == "vllm"
    table = said.partition("Written: ")[0]
    assert all(f" {one['loss']['value']:.3f} " in table for one in results["judged"])
    assert len(results["trials"]) == TRIALS
    assert (out / "report.html").stat().st_size > 20_000
    bare = AutoModelForCausalLM.from_pretrained(place / "model")
    ids = torch.arange(60)[None]
    loaded = AutoModelForCausalLM.from_pretrained(out / "model")
    with rw.extended(bare, extension), torch.no_grad():
        assert torch.allclose(loaded(ids).logits, bare(ids).logits, atol=1e-4)


@pytest.mark.nightly
def test_the_same_command_goes_on_and_measures_nothing_again(place, answered, capsys, monkeypatch):
    out, _ = answered
    first = json.loads((out / "results.json").read_text())
    monkeypatch.setattr("ropewalk.measure.comparison.runner.result_of", None)  # would fail where it is called
    assert fit(place, out) == 0
    assert {**json.loads((out / "results.json").read_text()), "made": first["made"]} == first


def test_another_goal_is_another_study(place, answered, capsys):
    out, _ = answered
    assert fit(place, out, "--seed", "1") == 2
    assert "study fit must be of the same model, text, goal and code, got 'seed 0 (now 1)'" in capsys.readouterr().err


def test_a_model_is_not_written_over(place, answered, capsys, monkeypatch):
    """It is refused before a search that may take hours."""
    out, _ = answered
    monkeypatch.setattr("ropewalk.search.fit.fit", lambda *given, **how: pytest.fail("the search began"))
    assert fit(place, out, "--save") == 2
    assert "new or empty" in capsys.readouterr().err


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--to", "32"], "--to must be above the trained length (32)"),
        (["--budget", "soon"], "--budget must be a time above 0 such as 90s, 20m or 2h"),
        (["--deployable", "mlx"], "there is no value for deployable 'mlx'. Known: any, static"),
        (["--objective", "near"], "there is no objective 'near'. Known: all, far"),
        (["--objective", "far"], "--corpus must be texts with tokens that need far context"),
        (["--lengths", "64,short"], "lengths must be a whole number such as 512, 32k or 1m, got 'short'"),
        (["--corpus", "nowhere"], "--corpus must be one of"),
        (["--samples", "0"], "Invalid value for '--samples': Input should be greater than or equal to 2, got '0'"),
        (["--samples", "400"], "--corpus must be one with 400 held-out documents"),
        (["--storage", "nonsense"], "--storage must be a study that Optuna opens"),
    ],
)
def test_errors_are_one_line(place, tmp_path, capsys, given, words):
    assert fit(place, tmp_path, *given) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.nightly
def test_what_a_search_cannot_reach_is_one_line_after_its_plan(place, tmp_path, capsys):
    assert fit(place, tmp_path, "--max-slowdown", "0.0001") == 2
    *plan, error = capsys.readouterr().err.splitlines()
    assert error.startswith("ropewalk: --max-slowdown must be reachable, got '0.0001'")
    assert [line for line in plan if "plan: 128 tokens, 4 times the trained length; 2 texts to search on" in line]
    assert len(plan) == 3


@pytest.mark.nightly
def test_the_tokens_that_need_far_context(place, capsys, monkeypatch):
    """By lower thresholds: this model is untrained, and predicts nothing by the usual ones."""

    def loosely(model, text, trained_len, begin=()):
        return key_tokens(model, text, near=trained_len // 8, far=trained_len, gain=0.0, most=9.0)

    monkeypatch.setattr("ropewalk.search.far_tokens.far_tokens", loosely)
    out = place / "far"
    assert fit(place, out, "--objective", "far") == 0
    first = json.loads((out / "results.json").read_text())
    assert first["goal"]["objective"] == "far"
    said = " ".join(capsys.readouterr().out.split())
    assert "the tokens that need far context, among the last 64 of 128 tokens, have a loss of" in said
    monkeypatch.setattr("ropewalk.measure.comparison.runner.result_of", None)  # would fail where it is called
    assert fit(place, out, "--objective", "far") == 0
    assert {**json.loads((out / "results.json").read_text()), "made": first["made"]} == first
    assert fit(place, out) == 2
    assert "got 'objective far (now all)'" in capsys.readouterr().err


def test_refused_texts_leave_no_store(place, tmp_path):
    assert fit(place, tmp_path / "out", "--samples", "400") == 2
    assert not (tmp_path / "out" / "cells.sqlite").exists()


@pytest.mark.nightly
def test_a_budget_that_is_too_small_is_said_to_be(place, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fitting, "reserve", lambda *given: 10_000.0)
    assert fit(place, tmp_path / "out", "--budget", "1000s") == 0
    said = capsys.readouterr()
    assert "too short for the final test: it takes longer" in said.err
    assert "\nWritten: " in said.out


def test_an_empty_text(place, tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "empty.txt").write_text("")
    assert fit(place, tmp_path / "out", "--corpus", f"folder:{tmp_path / 'texts'}") == 2
    assert "documents of at least" in capsys.readouterr().err


@pytest.mark.nightly
def test_several_lengths(place, tmp_path):
    out = tmp_path / "out"
    assert fit(place, out, "--lengths", "32,64") == 0
    results = json.loads((out / "results.json").read_text())
    assert results["goal"]["lengths"] == [32, 64]
    assert all([at["length"] for at in one["by_length"]] == [32, 64, 128] for one in results["judged"])
    assert fit(place, out, "--lengths", "64") == 2
