"""`rw.fit`: an extension to use, with its evidence, from a loaded model or a name."""

import json
import types

import pytest
import torch
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure.comparison import plan as precision
from ropewalk.search import fit as fitting, pace as planning

from measure.latex import read_table
from search.synthetic import TRIALS, so_many_trials as so_many_trials
from train.texts import folder_of


@pytest.fixture(scope="module")
def model(place):
    return AutoModelForCausalLM.from_pretrained(place / "model")


def fitted(model, place, **how):
    texts = {"samples": 2, "judges": 2, "corpus": f"folder:{place / 'texts'}"}
    return rw.fit(model, 64, **{"budget": "2h", **texts, **how})


@pytest.fixture(scope="module")
def result(place, model):
    return fitted(model, place, conditions=rw.Conditions(deployable="vllm"))


@pytest.mark.nightly
def test_its_extension_goes_on_the_model(result, model):
    assert handle_of(model) is None
    with rw.extended(model, result.extension) as handle:
        assert handle.extension == result.fit.written.extension
    rows = {row["extension"]: row for row in result.rows}
    assert rows[result.fit.answer.line]["behind"] == 0
    assert rows["bare"]["loss"] - rows[result.fit.answer.line]["loss"] == pytest.approx(rows["bare"]["behind"])


@pytest.mark.nightly
def test_what_it_shows_and_holds(result, tmp_path):
    shown = repr(result)
    assert shown.startswith("The best extension for 64 tokens, trained on 32 (deployable: vllm)\n")
    assert len(shown.splitlines()) <= 14
    assert result._repr_html_().count("<tr>") == 1 + len(result.rows)
    assert read_table(result.to_latex(brief=True))[2] == [result.brief.head, *result.brief.rows]
    assert len(read_table(result.to_latex())[2]) == 1 + len(result.rows)
    result.write(tmp_path / "fit")
    stored = json.loads((tmp_path / "fit" / "results.json").read_text())
    assert result.to_dict()["judged"] == stored["judged"]
    assert rw.parse(str(tmp_path / "fit" / "extension.json")) == result.extension
    assert len(stored["trials"]) == TRIALS


@pytest.mark.nightly
def test_the_model_is_saved_for_the_engine_of_the_goal(result, model, tmp_path):
    assert "vllm serve" in result.save(tmp_path / "model")
    ids = torch.arange(60)[None]
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    with rw.extended(model, result.extension), torch.no_grad():
        assert torch.allclose(loaded(ids).logits, model(ids).logits, atol=1e-4)


@pytest.mark.nightly
def test_a_name_and_a_folder_resume(place, tmp_path, monkeypatch):
    first = fitted(place / "model", place, folder=tmp_path)
    monkeypatch.setattr("ropewalk.measure.comparison.runner.result_of", None)  # would fail where it is called
    assert fitted(place / "model", place, folder=tmp_path).extension == first.extension


@pytest.mark.nightly
def test_a_budget_in_seconds_or_as_text(place, model, monkeypatch):
    budgets = []
    monkeypatch.setattr(fitting, "_answer", lambda request, fitting: budgets.append(request.budget))
    for budget in ("", 90, "90s", "2m"):
        fitted(model, place, budget=budget)
    fitted(model, place, budget="", options=rw.SearchOptions(quick=True))
    assert budgets == [1200, 90, 90, 120, 90]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"budget": "soon"}, "budget must be a time"),
        ({"options": rw.RunOptions(workers=2)}, "several workers need the name of a model"),
        ({"samples": 400}, "400 held-out documents"),
    ],
)
def test_what_is_wrong_is_a_sentence(model, place, given, message):
    with pytest.raises(rw.RopewalkError, match=message):
        fitted(model, place, **given)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"deployable": "mlx"}, "there is no value for deployable 'mlx'. Known: any, static"),
        ({"objective": "near"}, "there is no objective 'near'. Known: all, far"),
        ({"max_damage": -1}, "max_damage must be at least 0"),
        ({"lengths": [3.5]}, "lengths must be "),
    ],
)
def test_wrong_conditions_are_refused_when_they_are_stated(stated, message):
    with pytest.raises(rw.RopewalkError, match=message):
        rw.Conditions(**stated)


def at(seconds, monkeypatch):
    """A model that reads a text of any length in so many seconds, as far as a plan knows."""
    found = types.SimpleNamespace(seconds=lambda length: seconds)
    monkeypatch.setattr(planning, "calibrated_in_fastest", lambda *given, **how: found)


@pytest.mark.nightly
def test_what_there_is_no_time_for_is_left_out_and_said(place, model, tmp_path, monkeypatch, capsys):
    """And a search that goes on keeps to the texts that it was begun with, on a machine of another speed too."""
    corpus = folder_of(tmp_path / "texts", count=800, words=300)
    how = {
        "corpus": corpus,
        "budget": "1h",
        "options": rw.RunOptions(progress="lines"),
        "folder": tmp_path / "begun",
        "judge_on": "",
    }
    goals = []
    monkeypatch.setattr(fitting, "_answer", lambda request, fitting: goals.append(fitting.goal))
    for seconds in (30.0, 1e-6, 3000.0):
        at(seconds, monkeypatch)
        rw.fit(model, **how)
    assert {(goal.target_len, goal.samples, goal.judges) for goal in goals} == {(64, 3, 3)}
    said = capsys.readouterr().err
    assert "plan: 64 tokens, 2 times the trained length; 3 texts to search on, 3 others for the test" in said
    assert "the base model reads a text in about 30 s; time to try about " in said
    assert "the budget leaves no time to search; the test takes " in said
    at(1e-6, monkeypatch)
    rw.fit(model, **{**how, "folder": tmp_path / "other"})
    assert (goals[-1].target_len, goals[-1].samples, goals[-1].judges) == (256, 16, 24)


def test_a_search_goes_on_in_the_precision_that_it_was_begun_in(place, monkeypatch):
    seen = []
    monkeypatch.setattr(fitting, "is_free", lambda model, loaded, options: True)
    monkeypatch.setattr(fitting, "_answer", lambda request, fitting: seen.append(fitting.subject.model.dtype))
    for faster in (torch.bfloat16, torch.float32):
        times = {faster: 1.0}
        monkeypatch.setattr(precision, "product_seconds", lambda dtype, times=times: times.get(dtype, 100.0))
        fitted(place / "model", place, folder=place / "precise")
    assert seen == [torch.bfloat16] * 2
