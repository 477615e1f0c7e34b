"""`rw.compare`: the numbers are the model's, a loaded model stays as it was, nothing is measured twice in a folder."""

import csv
import io
import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure import opened_model
from ropewalk.measure.comparison import runner
from ropewalk.measure.material.subject import Subject

from measure.latex import read_table


@pytest.fixture(scope="module")
def model(place):
    return AutoModelForCausalLM.from_pretrained(place / "model")


ALONE = "last 32 alone"  # the unchanged model on its trained length


def compared(model, corpus, extensions=("yarn", "window:window=8"), **how):
    return rw.compare(model, extensions, **{"lengths": [64], "samples": 2, "tasks": "context", "corpus": corpus, **how})


@pytest.fixture(scope="module")
def result(place, model):
    return compared(model, f"folder:{place / 'texts'}")


def by_hand(model, place, line):
    """Losses of the second half of the last tokens, by transformers' own logits."""
    tokenizer = AutoTokenizer.from_pretrained(place / "model")
    texts = Subject(model=model, tokenizer=tokenizer, corpus=f"folder:{place / 'texts'}", longest=64).passages(2)
    ids = torch.stack(texts)
    with rw.extended(model, line, target_len=64), torch.no_grad():
        logits = model(ids).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.mT, ids[:, 1:], reduction="none")
    return losses[:, -16:].mean().item()


@pytest.mark.parametrize("line", ["yarn", "window:window=8"])
def test_the_numbers_are_the_models(result, model, place, line):
    row = next(row for row in result.rows if (row["extension"], row["length"], row["metric"]) == (line, 64, "loss"))
    assert row["value"] == pytest.approx(by_hand(model, place, line), rel=1e-4)
    assert row["samples"] == 2
    assert row["low"] <= row["value"] <= row["high"]


def test_print_is_a_few_lines(result):
    shown = repr(result)
    assert shown.startswith("Trained on 32 tokens, measured at 32, 64\n")
    assert 5 <= len(shown.splitlines()) <= 9
    assert len(shown) < 800
    for name in ("base model", "yarn", "window:window=8"):
        assert name in shown


def test_its_data(result, tmp_path):
    read = list(csv.DictReader(io.StringIO(result.to_csv(tmp_path / "rows.csv"))))
    assert (tmp_path / "rows.csv").read_text() == result.to_csv()
    assert [float(row["value"]) for row in read] == [row["value"] for row in result.rows]
    page = result.write(tmp_path / "report")
    stored = json.loads((tmp_path / "report" / "results.json").read_text())
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == stored
    assert page.exists()
    assert result.best in {row["extension"] for row in result.rows}


def test_its_table_for_a_paper(result, tmp_path):
    text = result.to_latex(tmp_path / "table.tex")
    assert (tmp_path / "table.tex").read_text() == text
    caption, spec, rows = read_table(text)
    assert caption.endswith("model: trained on 32 tokens, measured at 32, 64")
    assert spec == "l" + "r" * (len(rows[0]) - 2) + "l"
    assert rows == [result.table.head, *result.table.rows]
    assert read_table(result.to_latex(brief=True))[2] == [result.brief.head, *result.brief.rows]
    assert {r"\texttt{yarn}", r"\texttt{window:window=8}", "base model"} <= {
        row.split(" & ")[0] for row in text.split("\n")
    }
    assert text.startswith(f"% ropewalk {rw.__version__}, torch {torch.__version__}, ")


def test_a_notebook_shows_the_table_of_the_report(result):
    shown = result._repr_html_()
    assert shown.count("<tr>") == 1 + 4  # the head, the base model twice, two extensions
    assert "loss at 64" in shown
    assert len(shown) < 4000


def test_a_loaded_model_stays_as_it_was(model, corpus):
    handle = rw.extend(model, "rerope:window=8")
    ids = torch.arange(3, 60)[None]
    model.train()
    try:
        before = model(ids).logits
        measured = compared(model, corpus, "yarn")
        assert handle_of(model) is not None
        assert model.training
        assert torch.equal(model(ids).logits, before)
    finally:
        handle.remove()
        model.eval()
    assert handle_of(model) is None
    trained = measured.comparison.trained_under
    assert trained == rw.parse("rerope:window=8")


def test_extensions_by_name_as_objects_and_as_a_mapping(model, corpus):
    one = rw.parse("yarn:factor=2")
    losses = [
        [row["value"] for row in compared(model, corpus, given).rows if row["extension"] not in ("bare", ALONE)]
        for given in ("yarn:factor=2", one, [one], {"mine": "yarn:factor=2"}, {"mine": one})
    ]
    assert losses[0]
    assert all(found == pytest.approx(losses[0]) for found in losses)
    assert {row["extension"] for row in compared(model, corpus, {"mine": one}).rows} == {"bare", "mine", ALONE}


def test_a_name_is_a_loaded_model(place, corpus, result):
    for name in (place / "model", str(place / "model")):
        again = compared(name, corpus)
        assert [row["value"] for row in again.rows] == pytest.approx([row["value"] for row in result.rows], rel=1e-4)


def test_in_a_folder_nothing_is_measured_twice(model, corpus, tmp_path, monkeypatch):
    first = compared(model, corpus, folder=tmp_path)
    monkeypatch.setattr(runner, "result_of", None)  # would fail where it is called
    assert compared(model, corpus, folder=tmp_path).rows == first.rows


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"extensions": "yern"}, "did you mean 'yarn'"),
        ({"extensions": 3}, "extensions must be a list of extensions"),
        ({"extensions": [3]}, "extension must be text, got 3"),
        ({"samples": 1}, "samples must be at least 2, got 1"),
        ({"lengths": ["many"]}, "lengths must be a whole number"),
        ({"lengths": [16]}, "lengths must be at least the trained length (32), got 16"),
        ({"tasks": "nedle"}, "did you mean 'needle'"),
        ({"corpus": "nowhere"}, "corpus must be one of"),
        (
            {"options": rw.LoadOptions(device="cpu")},
            "device applies only to a model given by name, and this one is already loaded; call model.to(device)",
        ),
    ],
)
def test_what_is_wrong_is_a_sentence(model, corpus, given, message):
    with pytest.raises(rw.RopewalkError, match=message.replace("(", r"\(").replace(")", r"\)")):
        compared(model, **{"corpus": corpus, **given})
    assert handle_of(model) is None


def test_wrong_lines_are_refused_before_a_model_is_loaded(place, corpus, monkeypatch):
    monkeypatch.setattr(opened_model, "load_model", None)  # would fail where it is called
    with pytest.raises(rw.UnknownName, match="yern"):
        compared(place / "model", corpus, "yern")


def test_a_model_without_a_name_needs_a_tokenizer(corpus):
    from ropewalk.train.small_models import ModelShape, new_small_model

    made = new_small_model(ModelShape(vocabulary=300, width=32, inner=64, layers=1, heads=2, trained_len=32))
    with pytest.raises(rw.InvalidValue, match=r"needs a tokenizer; pass options=RunOptions\(tokenizer=\.\.\.\)"):
        compared(made, corpus)


def test_transformers_reports_as_much_as_before(place, corpus):
    from transformers.utils import logging

    logging.set_verbosity_info()
    logging.enable_progress_bar()
    try:
        compared(str(place / "model"), corpus, "yarn")
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity_warning()


def test_no_object_disappears(model, corpus):
    """Schedules with one beginning, layers that differ: each is measured, under a name of its own."""
    first = ",".join(["1.0123456789"] * 7)  # the name is cut before the last number
    long = [rw.parse(f"longrope:long=[{first},{last}],short=[{first},{last}],factor=2") for last in (2, 200)]
    layered = [rw.Extension(layers={layer: rw.parse("window:window=8")}) for layer in (0, 1)]
    found = compared(model, corpus, [*long, *layered], lengths=[64]).comparison
    assert [one.extension for one in found.candidates[1:]] == [*long, *layered]
    assert len({one.line for one in found.candidates}) == 5
    losses = [one.at("context", 64).numbers["loss"].value for one in found.candidates]
    assert len(set(losses)) == 5


def test_the_base_model_is_never_replaced(model, corpus):
    with pytest.raises(rw.InvalidValue, match="without the names 'bare'"):
        compared(model, corpus, {"bare": "window:window=8"})
    with pytest.raises(rw.InvalidValue, match="without the names 'bare'"):
        rw.leaderboard(model, 64, {"bare": "window:window=8"}, corpus=corpus)
