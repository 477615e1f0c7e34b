"""docs/models.md lists every architecture, nothing in it is wrong, and rows made anew are what it says."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from sweep import verdict as checks
from sweep.families import CAUSAL, FAMILIES, Family, words
from sweep.readings import READINGS
from sweep.verdict import verdict

from ropewalk.hf.attach.handle import handle_of

from hf.architectures import small
from nightly import first_of_each

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from markdown_table import table_of  # noqa: E402
from models import HEADER, PAGE, row, sample  # noqa: E402

TABLES = {part.partition("\n")[0]: part for part in PAGE.read_text().split("\n## ")[1:]}
WORDS = {"right", "static only", "unrotated", "refused", "not made"}


def rows_of(family):
    """Its rows, by the architecture."""
    table = TABLES[family.title].split(table_of(HEADER, []))[1]
    return {line.split(" | ")[0].removeprefix("| "): line for line in table.strip().splitlines()}


def word_of(line):
    return line.split(" | ")[1]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.title)
def test_every_architecture_of_a_family_is_there_once(family):
    assert list(rows_of(family)) == list(family.names)


def test_no_causal_architecture_of_transformers_is_left_out():
    assert len(CAUSAL.names) >= 189


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.title)
def test_none_is_wrong_and_the_counts_are_those_of_the_rows(family):
    rows = rows_of(family)
    counts = Counter(map(word_of, rows.values()))
    assert set(counts) <= WORDS
    stated = re.search(r"^Of (\d+): (.*)\.$", TABLES[family.title], flags=re.MULTILINE)
    assert int(stated[1]) == len(rows)
    assert {word: int(count) for count, word in re.findall(r"(\d+) ([a-z ]+)", stated[2])} == counts
    for line in rows.values():
        works = word_of(line) in ("right", "unrotated")
        assert works or line.rstrip(" |").split(" | ")[-1] != "-"  # what is not taken has a reason


ROWS = [(family, name) for family in FAMILIES for name in sample(family.names)]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "made", first_of_each(ROWS, lambda made: made[0].title, lambda made: f"{made[0].title}-{made[1]}")
)
def test_a_row_made_anew_is_the_same(made):
    family, name = made
    assert f"| {' | '.join(row(verdict(family, name)))} |" == rows_of(family)[name]


class Leaking(torch.nn.Module):
    """A layer whose output depends on how many rows are in the batch."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * (1 + 0.1 * (x.shape[0] - 1))


@pytest.mark.nightly
def test_a_way_in_which_the_base_model_differs_is_named_and_not_compared():
    def leaking(name):
        model = small(name)
        model.model.norm = Leaking(model.model.norm)
        return model

    result = verdict(Family("leaking", ["llama"], leaking, words), "llama")
    assert result.word == "right"
    assert "the base model itself differs: padding, padding with positions, padding through the cache" in result.notes
    assert "chunks" not in result.notes


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["chunks", "padding", "generate"])
def test_other_logits_under_an_extension_are_wrong(monkeypatch, name):
    def broken(rows, reading=READINGS[name]):
        got, expected = reading(rows)
        return got * (1.1 if handle_of(rows.model) else 1), expected

    monkeypatch.setattr(checks, "READINGS", {name: broken})
    result = verdict(CAUSAL, "llama")
    assert result.word == "wrong"
    assert result.notes.startswith(f"pi:factor=4, {name}: off by ")


@pytest.mark.nightly
def test_an_exception_under_an_extension_is_wrong(monkeypatch):
    def crashing(rows):
        if handle_of(rows.model):
            raise KeyError("layer 7")
        return rows.whole(), rows.whole()

    monkeypatch.setattr(checks, "READINGS", {"chunks": crashing})
    result = verdict(CAUSAL, "llama")
    assert (result.word, result.notes) == ("wrong", "pi:factor=4, chunks: KeyError: 'layer 7'")


@pytest.mark.nightly
def test_other_logits_after_loading_are_wrong(monkeypatch):
    def load_another(place):
        model = load(place)
        model.lm_head.weight.data *= 1.1
        return model

    load = checks.rw.load
    monkeypatch.setattr(checks.rw, "load", load_another)
    monkeypatch.setattr(checks, "READINGS", {})
    assert verdict(CAUSAL, "llama").notes.startswith("pi:factor=4, saved and loaded: off by ")
