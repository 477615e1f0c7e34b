"""docs/models.md lists every architecture, nothing in it is wrong, and rows made anew are what it says."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hf.architectures import NAMES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from models import HEADER, PAGE, sample, verdict  # noqa: E402

ROWS = {line.split(" | ")[0].removeprefix("| "): line for line in PAGE.read_text().splitlines() if " | " in line}
ROWS.pop(HEADER[0].split(" | ")[0].removeprefix("| "))


def test_every_architecture_of_transformers_is_there_once():
    assert list(ROWS) == NAMES
    assert len(NAMES) >= 189


def test_none_is_wrong_and_the_counts_are_those_of_the_rows():
    words = Counter(row.split(" | ")[1] for row in ROWS.values())
    assert set(words) <= {"right", "static only", "refused", "not made"}
    said = {word: int(count) for count, word in re.findall(r"(\d+) ([a-z ]+)[,.]", PAGE.read_text().split("Of 1")[1])}
    assert {word: count for word, count in said.items() if word in words} == words
    for row in ROWS.values():
        assert (
            row.split(" | ")[1] == "right" or row.rstrip(" |").split(" | ")[-1] != "-"
        )  # what is not taken has a reason


@pytest.mark.parametrize("name", sample())
def test_a_row_made_anew_is_the_same(name):
    assert verdict(name).row() == ROWS[name]
