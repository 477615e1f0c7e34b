"""RULER's kinds: the prompt holds its answer and nothing else does, lengths are exact, scores are RULER's."""

import json
import math
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.measure.tasks import Ruler
from ropewalk.measure.tasks.answers import match_all, match_any
from ropewalk.measure.tasks.ruler.needles import NeedleKind
from ropewalk.measure.tasks.ruler.puzzle import PuzzleMaterial
from ropewalk.measure.tasks.ruler.task import KINDS, Kind

from measure import oracles

LENGTHS = {"niah_multikey_3": 1300, "cwe": 1500}
COLOURS = "red blue green yellow black white grey brown pink violet".split()  # noqa: SIM905


@pytest.fixture
def questions(tmp_path):
    place = tmp_path / "questions.jsonl"
    rows = []
    for n in range(80):
        name, colour = f"thing{chr(97 + n // 26)}{chr(97 + n % 26)}", COLOURS[n % 10]
        asked = {"question": f"What is the colour of {name}?", "answers": [colour, f"the colour {colour}"]}
        told = f"It is said that the colour of {name} is {colour} in most places."
        rows += [{**asked, "context": told}, {**asked, "context": [told, f"Nothing more is known of {name}."]}]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(place)


def task(kind, questions=None, **values):
    return Ruler(kind=kind, questions=questions if kind.startswith("qa") else None, **values)


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_who_reads_the_prompt_is_right_and_who_does_not_is_wrong(who, questions, monkeypatch, kind):
    one, length = task(kind, questions), LENGTHS.get(kind, 1000)
    assert one.measure(who, length, 0)["score"] == 0.0
    oracles.put(monkeypatch, who, oracles.of(kind))
    assert [one.measure(who, length, sample)["score"] for sample in range(4)] == [1.0] * 4


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_prompt_with_what_may_be_written_fills_the_length(who, questions, kind):
    one, length = task(kind, questions), LENGTHS.get(kind, 1000) + 137
    posed = one.posed(who, length, 3)
    used = len(posed.prompt.ids) + posed.puzzle.tokens(posed.prompt)
    # Filler is cut by the character. Words and documents come whole; one noise sentence knows only so many cuts.
    short = {"vt": 1, "cwe": 40, "fwe": 40, "qa_1": 80, "qa_2": 80}.get(kind, 0)
    assert length - short <= used <= length
    assert posed.puzzle.tokens(posed.prompt) >= len(posed.prompt.answer_ids)
    assert all(posed.prompt.text.count(word) == 1 for word in posed.puzzle.once)


@pytest.mark.parametrize(
    ("kind", "told", "asked"),
    [
        ("niah_single_1", 1, 1),
        ("niah_single_3", 1, 1),
        ("niah_multikey_1", 4, 1),
        ("niah_multivalue", 4, 4),
        ("niah_multiquery", 4, 4),
    ],
)
def test_as_many_needles_as_in_the_paper(who, kind, told, asked):
    posed = task(kind).posed(who, 1200, 0)
    facts = oracles.FACT.findall(posed.prompt.text)
    assert len(facts) == told
    assert len(posed.puzzle.answers) == asked
    assert set(posed.puzzle.answers) <= {value for _, value in facts}
    assert posed.prompt.text.partition("One of the special")[0].endswith("\n")
    digits = (
        r"\d{7}" if kind != "niah_single_3" else r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    )
    assert all(re.fullmatch(digits, value) for _, value in facts)


def test_needles_among_needles(who):
    text = task("niah_multikey_2").prompt(who, 1200, 0).text
    lines = text.splitlines()
    assert sum(line.startswith("One of the special magic numbers for ") for line in lines) > 5
    assert not re.search(r"The grass|walk", text)


def test_needles_among_needles_are_words_and_numbers_or_uuids(who):
    uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    for kind, key, value in (("niah_multikey_2", r"[a-z]+-[a-z]+", r"\d{7}"), ("niah_multikey_3", uuid, uuid)):
        facts = oracles.FACT.findall(task(kind).prompt(who, 1400, 0).text)
        assert len(facts) > 5
        assert all(re.fullmatch(key, name) and re.fullmatch(value, content) for name, content in facts)


@pytest.mark.parametrize(
    ("kinds", "tokens"),
    # As tokens_to_generate in NVIDIA/RULER, scripts/data/synthetic/constants.py.
    [(r"niah", 128), (r"vt", 30), (r"cwe", 120), (r"fwe", 50), (r"qa", 32)],
)
def test_as_many_tokens_may_be_written_as_rulers(who, questions, kinds, tokens):
    chosen = [kind for kind in get_args(Kind) if kind.startswith(kinds)]
    assert chosen
    for kind in chosen:
        puzzle = KINDS[kind](PuzzleMaterial(Random(0), 1500, lambda: "a line\n", who.tokens, questions))
        assert puzzle.writes == puzzle.growing.spare == tokens


def test_writing_ends_with_the_last_answer(who, monkeypatch):
    oracles.put(monkeypatch, who, lambda text: oracles.needles(text) + " and so on")
    one = task("niah_multiquery")
    got = one.measure(who, 1000, 0)
    assert got["right"]
    assert any(got["wrote"].endswith(answer) for answer in one.posed(who, 1000, 0).puzzle.answers)


def test_a_chain_is_in_order(who):
    text = task("vt").prompt(who, 1500, 0).text
    told = re.findall(r"VAR (\w+) = VAR (\w+)", text[text.rindex("Memorize") :])
    assert [name for name, _ in told[:-1]] == [origin for _, origin in told[1:]]
    assert len(told) == 4
    assert text.count("they are:") == 2  # an example stands before
    for part, letters in ((text[: text.rindex("Memorize")], 3), (text[text.rindex("Memorize") :], 5)):
        names = re.findall(r"VAR (\w+) =", part)
        assert [len(name) for name in names] == [letters] * 5
        assert len(set(names)) == 5


def test_words_stand_as_often_as_stated(who):
    for length, often, seldom, count in ((1500, 4, 1, 5), (3000, 6, 1, 10)):
        posed = task("cwe").posed(who, length, 0)
        text = posed.prompt.text[posed.prompt.text.rindex("Below is") :].partition("Question")[0]
        counted = Counter(re.findall(r"\d+\. (\S+)", text))
        assert {counted[word] for word in posed.puzzle.answers} == {often}
        assert {times for word, times in counted.items() if word not in posed.puzzle.answers} == {seldom}
        assert len(posed.puzzle.answers) == count


def test_the_frequencies_of_coded_words_fall_as_stated(who):
    posed = task("fwe").posed(who, 2000, 0)
    said = Counter(re.search(r"coded words\. (.+)\nQuestion", posed.prompt.text)[1].split())
    first, *others = [times for _, times in said.most_common(5)]
    assert said["...."] == first
    assert others == pytest.approx([first / k**2 for k in (2, 3, 4, 5)], abs=1)
    stands = sum(said.values())
    assert len(said) == pytest.approx(min(2000 / 50 + 1, (stands / (math.pi**2 / 6)) ** 0.5), abs=3)
    assert len(set(others[2:])) == 2  # the last that is asked for stands more often than the next


def test_scores_are_of_substrings_in_any_case():
    # As NVIDIA's string_match_all and string_match_part: a share of the answers, and any wording.
    assert match_all("they are ABC and def", ["abc", "DEF", "ghi", "jkl"]) == 0.5
    assert match_any("in the year 1961.", ["1961", "nineteen sixty-one", "'61"]) == 1.0
    assert match_any("never", ["1961"]) == 0.0


def test_a_part_of_the_answers_is_a_part_of_the_score(who, monkeypatch):
    def half(text):
        return " ".join(oracles.needles(text).split(" and ")[:2])

    oracles.put(monkeypatch, who, half)
    one = task("niah_multiquery", samples=3)
    found = [one.measure(who, 1000, sample) for sample in range(3)]
    assert [each["score"] for each in found] == [0.5] * 3
    numbers = one.condense(found)
    assert numbers["score"].value == 0.5
    assert numbers["right"].value == 0.0
    assert numbers["score"].low < 0.4  # Wilson's: three prompts tell little


def test_without_a_kind_each_for_which_there_is_all_it_needs(questions):
    assert [each.title for each in Ruler.named({})] == [kind for kind in get_args(Kind) if not kind.startswith("qa")]
    assert [each.title for each in Ruler.named({"questions": questions})] == list(KINDS)
    assert [each.title for each in Ruler.named({"kind": "vt"})] == ["vt"]


def test_cells_of_questions_depend_on_the_file_and_not_on_its_place(questions, tmp_path):
    other = tmp_path / "other.jsonl"
    text = Path(questions).read_text()
    other.write_text(text)
    assert task("qa_1", questions).identity(0) == task("qa_1", str(other)).identity(0)
    other.write_text(text + text.splitlines()[0] + "\n")
    assert task("qa_1", questions).identity(0) != task("qa_1", str(other)).identity(0)


ROW = {"question": "What?", "answers": ["this"], "context": "This is."}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (None, "qa_1 and qa_2 need a file of questions about your documents; give questions=FILE.jsonl"),
        ("missing", "questions must be a file that exists"),
        (["no json"], "line 1 must be JSON"),
        (["[" * 100_000], "line 1 must be JSON"),
        ([json.dumps({**ROW, "question": "What \ud800?"})], r"line 1 must be text, got '\\ud800'"),
        ([json.dumps({**ROW, "context": ["\udfff"]})], r"line 1 must be text, got '\\udfff'"),
        ([json.dumps({"question": "What?"})], "an object with question, answers and context"),
        ([json.dumps({**ROW, "answers": []})], "an object with question, answers and context"),
        ([json.dumps({**ROW, "context": ["one", "two"]})], "questions that have one context"),
        ([json.dumps(ROW)], "text to hide in must be enough for 1000 tokens"),
    ],
)
def test_files_that_will_not_do(who, tmp_path, rows, words):
    place = tmp_path / "questions.jsonl"
    if isinstance(rows, list):
        place.write_text("\n".join(rows) + "\n")
    one = Ruler(kind="qa_1", questions=None if rows is None else str(place))
    with pytest.raises((InvalidValue, Unreadable, DoesNotFit), match=words):
        one.require(who, [1000])


def test_every_length_is_looked_at_before_anything_is_measured(who, questions):
    task("qa_1", questions).require(who, [1000, 2000])
    for lengths in ([1000, 100_000], [100_000, 1000]):
        with pytest.raises(DoesNotFit, match="text to hide in must be enough for 100000 tokens"):
            task("qa_1", questions).require(who, lengths)


def test_a_length_without_room_is_refused_before_anything_is_measured(who, monkeypatch):
    monkeypatch.setattr(Ruler, "measure", None)
    with pytest.raises(DoesNotFit, match=r"length must be at least \d+"):
        task("niah_multiquery").require(who, [200, 2000])


@pytest.mark.parametrize("kind", ["niah_single_2", "niah_multikey_1", "niah_multiquery"])
def test_lines_of_the_text_that_name_a_key_are_left_out(who, kind):
    """Else the prompt would tell of the key what is not hidden in it."""
    harmless = "nothing is said of any of them here\n"

    def made(filler):
        material = PuzzleMaterial(Random(3), 1000, lambda: filler, who.tokens, None)
        return NeedleKind.puzzle(KINDS[kind].__self__, material)

    keys = {key for key, _ in oracles.FACT.findall(made(harmless).growing.text(2000))}
    told = made("".join(f"and so {key} it was\n" for key in keys) + harmless).growing.text(2000)
    assert keys
    assert {key for key, _ in oracles.FACT.findall(told)} == keys
    assert harmless in told
    assert "it was" not in told
