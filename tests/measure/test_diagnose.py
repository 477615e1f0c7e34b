"""`rw.diagnose`: both sides in a table, the loss as transformers computes it."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure.material.subject import Subject

from measure.latex import read_table


@pytest.fixture(scope="module")
def model(place):
    return AutoModelForCausalLM.from_pretrained(place / "model")


@pytest.fixture(scope="module")
def result(place, model):
    return rw.diagnose(model, "rerope:window=8", length=64, texts=1, corpus=f"folder:{place / 'texts'}")


def test_the_loss_is_the_models(result, model, place):
    tokenizer = AutoTokenizer.from_pretrained(place / "model")
    subject = Subject(model=model, tokenizer=tokenizer, corpus=f"folder:{place / 'texts'}", longest=64)
    ids = subject.passages(1)[0][None]
    with rw.extended(model, "rerope:window=8"), torch.no_grad():
        logits = model(ids).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.mT, ids[:, 1:], reduction="none")[0]
    row = next(row for row in result.rows if row["number"].startswith("loss") and row["extension"] != "bare")
    assert row["within"] == pytest.approx(losses[:31].mean().item(), rel=0.02)  # the report averages bins
    assert row["beyond"] == pytest.approx(losses[31:].mean().item(), rel=0.02)


def test_what_it_shows_and_holds(result, tmp_path):
    shown = repr(result)
    assert shown.startswith("Trained on 32 tokens, diagnosed at 64: base model and rerope:window=8\n")
    assert len(shown.splitlines()) <= 9
    assert {row["extension"] for row in result.rows} == {"bare", "rerope:window=8"}
    assert result._repr_html_().count("<tr>") == 1 + len(result.rows) / 2
    result.write(tmp_path / "inside")
    stored = json.loads((tmp_path / "inside" / "diagnosis.json").read_text())
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == stored
    assert result.to_csv().count("\n") == 1 + len(result.rows)
    assert read_table(result.to_latex())[1:] == ("lrrrr", [result.table.head, *result.table.rows])
    assert r" & \texttt{rerope:window=8}, within 32 & " in result.to_latex()


def test_the_base_model_alone_and_an_extension_as_an_object(model, corpus):
    alone = rw.diagnose(model, length="64", texts=1, corpus=corpus)
    assert {row["extension"] for row in alone.rows} == {"bare"}
    both = rw.diagnose(model, rw.parse("window:window=8"), length=64, texts=1, corpus=corpus)
    assert len(both.diagnosis.sides) == 2
    assert handle_of(model) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length": 16}, "length must be above the trained length"),
        ({"length": "far"}, "length must be a whole number"),
        ({"extension": "rerop"}, "did you mean 'rerope'"),
        ({"texts": 0}, "texts must be at least 1, got 0"),
    ],
)
def test_what_is_wrong_is_a_sentence(model, corpus, given, message):
    with pytest.raises(rw.RopewalkError, match=message):
        rw.diagnose(model, **{"corpus": corpus, "length": 64, **given})
