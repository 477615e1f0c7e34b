"""Which loss predicts the scores, on comparisons whose answer is known."""

import json
import math

import pytest

from ropewalk.errors import DoesNotFit, Unreadable
from ropewalk.measure.comparison.predictors import predict, predictions_in

LINES = ("a", "b", "c", "d", "e", "f")
LENGTHS = (512, 1024)


def rows(skill, length, chance):
    """LongPPL falls with the skill of an extension, plain perplexity with nothing but the length."""
    return {
        ("longppl", length): {
            "longppl": math.exp(3 - skill),
            "loss": 3 - skill,
            "perplexity": 10 - length / 512 + chance,
        },
        ("context", length): {"loss": skill, "accuracy": 0.5},
        ("passkey", length): {"right": skill / 10, "loss": 1.0},
        ("repetition", length): {"accuracy": 0.5, "loss": 1.0},
        ("damage", length): {"loss": 0.0, "agreement": 1.0},
    }


def measured(lines=LINES):
    """Skills 0 to 5; chance turns with the letter."""
    return {
        line: {key: numbers for length in LENGTHS for key, numbers in rows(n, length, (n * 7 % 6) / 100).items()}
        for n, line in enumerate(lines)
    }


def of(found, loss, score="passkey"):
    (one,) = (one for one in found if (one.loss, one.score) == (loss, score))
    return one


def test_what_falls_with_every_score_is_minus_one_and_what_rises_is_one():
    found = predict(measured(), 0)
    assert of(found, "longppl").rho[:3] == pytest.approx((-1, -1, -1))
    assert of(found, "longppl").at_one_length.value == pytest.approx(-1)
    assert of(found, "context").rho.value == pytest.approx(1)
    assert of(found, "context").lead.value == pytest.approx(2)
    assert of(found, "longppl").lead is None
    scores = {"passkey", "passkey answer", "repetition", "repetition answer"}  # context and damage have no score
    assert {one.score for one in found} == scores
    assert {(one.extensions, one.rho.of) for one in found} == {(6, 12)}
    assert math.isnan(of(found, "longppl", "repetition").rho.value)  # it never changes


def test_an_order_that_comes_from_lengths_alone_vanishes_at_one_length():
    """Score and perplexity both depend on the length, and on nothing else in common."""
    numbers = measured()
    for n, line in enumerate(LINES):
        for length in LENGTHS:
            numbers[line]["passkey", length]["right"] = length / 1024 + (n * 5 % 6) / 1000
    found = of(predict(numbers, 0), "perplexity")
    assert found.rho.value < -0.4
    assert abs(found.at_one_length.value) < 0.4


def test_by_hand_at_one_length():
    """Skills 0 to 3 at one length, scores 0, 2, 1, 3: ranks 4 3 2 1 of LongPPL and 1 3 2 4: rho = -0.8."""
    numbers = {
        line: {
            ("longppl", 512): {"longppl": 9.0 - n, "perplexity": 1.0 + n},
            ("context", 512): {"loss": 1.0},
            ("needle", 512): {"score": (0, 2, 1, 3)[n], "right": 0.0, "loss": 1.0},
        }
        for n, line in enumerate("abcd")
    }
    found = predict(numbers, 0)
    assert of(found, "longppl", "needle").rho.value == pytest.approx(-0.8)
    assert of(found, "longppl", "needle").at_one_length.value == pytest.approx(-0.8)
    assert of(found, "perplexity", "needle").lead.value == pytest.approx(1.6)


def test_answers_count_by_their_loss():
    """The loss of the passkey's answer falls with the skill, as LongPPL does; that of the repetition rises."""
    numbers = measured()
    for n, line in enumerate(LINES):
        for length in LENGTHS:
            numbers[line]["passkey", length]["loss"] = 6.0 - n
            numbers[line]["repetition", length]["loss"] = 1.0 + n
    found = predict(numbers, 0)
    assert of(found, "longppl", "passkey answer").rho.value == pytest.approx(-1)
    assert of(found, "longppl", "repetition answer").rho.value == pytest.approx(1)


def test_within_the_trained_length_no_text_is_far():
    assert {one.rho.of for one in predict(measured(), 511)} == {12}
    assert {one.rho.of for one in predict(measured(), 512)} == {6}
    assert predict(measured(), 1024) == []


def test_all_of_it_as_json():
    found = of(predict(measured(), 0), "context")
    assert found.to_json() == {
        "loss": "context",
        "score": "passkey",
        "extensions": 6,
        "rho": found.rho._asdict(),
        "at_one_length": found.at_one_length._asdict(),
        "lead": found.lead._asdict(),
    }


def test_as_a_line():
    found = of(predict(measured(), 0), "context")
    line = "context and passkey: 1.00 [1.00, 1.00], at one length 1.00 [1.00, 1.00], LongPPL ahead by 2.00 [2.00, 2.00]"
    assert str(found) == f"{line} (6 extensions, 12 points)"
    assert "ahead" not in str(of(predict(measured(), 0), "longppl"))


def test_points_without_a_number_are_left_out():
    numbers = measured()
    del numbers["a"]["longppl", 512]
    numbers["b"]["longppl", 1024]["longppl"] = math.nan
    assert of(predict(numbers, 0), "longppl").rho.of == 10


@pytest.mark.parametrize("change", ["few", "no longppl", "no score"])
def test_what_says_nothing(change):
    numbers = measured(LINES[:3] if change == "few" else LINES)
    drop = {"few": (), "no longppl": ("longppl",), "no score": ("passkey", "repetition")}[change]
    for line_rows in numbers.values():
        for key in [key for key in line_rows if key[0] in drop]:
            del line_rows[key]
    assert predict(numbers, 0) == []


def results(numbers, trained_len=0):
    """As `results.json` has them; infinite and unknown numbers are null there."""
    return {
        "trained_len": trained_len,
        "candidates": [
            {
                "line": line,
                "rows": [
                    {"task": task, "length": length, "numbers": {name: {"value": value} for name, value in row.items()}}
                    for (task, length), row in line_rows.items()
                ],
            }
            for line, line_rows in numbers.items()
        ],
    }


def test_from_a_file_with_and_without_some_extensions(tmp_path):
    place = tmp_path / "results.json"
    place.write_text(json.dumps(results(measured())))
    assert of(predictions_in(place), "longppl") == of(predict(measured(), 0), "longppl")
    place.write_text(json.dumps(results(measured(), 512)))
    assert of(predictions_in(place), "longppl").rho.of == 6
    assert of(predictions_in(place, without=("a", "b")), "longppl").extensions == 4
    with pytest.raises(DoesNotFit, match=r"results must be .*at least 4 extensions, got '3 extensions in"):
        predictions_in(place, without=("a", "b", "c"))


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"candidates": 3},
        {"candidates": [{"line": "a"}]},
        {"candidates": [{"line": "a", "rows": [{"task": "longppl", "length": 1, "numbers": {"loss": 3}}]}]},
        {
            "candidates": [
                {"line": "a", "rows": [{"task": "longppl", "length": 1, "numbers": {"loss": {"value": "x"}}}]}
            ]
        },
    ],
)
def test_what_are_no_results_is_refused(tmp_path, content):
    place = tmp_path / "results.json"
    place.write_text(json.dumps(content))
    with pytest.raises(Unreadable, match=r"results must be the results\.json"):
        predictions_in(place)
