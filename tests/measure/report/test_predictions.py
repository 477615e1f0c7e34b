"""Which loss predicts the scores, in the report: shown where it is known, with the numbers of the comparison."""

import math
from dataclasses import replace

import pytest

from ropewalk.measure.comparison.runner import ResultRow
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.comparison import as_json, page_of, write_report
from ropewalk.measure.report.predictions import NAME, prediction_part, predictions
from ropewalk.measure.report.tables import estimated
from ropewalk.measure.tasks import LongPPL

from measure.report.made_up import LENGTHS, comparison

NAMES = ("yarn", "pi", "ntk", "rope")
TASK = LongPPL(samples=2)


def judged(candidate, number):
    """A candidate with LongPPL: the higher its number, the worse."""
    numbers = {
        name: Estimate(value, value / 2, 2 * value, 2)
        for name, value in (("longppl", 2.0 + number), ("loss", 1.0), ("perplexity", 5.0 - number % 2))
    }
    rows = [ResultRow(candidate.extension, TASK, length, numbers, ({}, {}), 1.0) for length in LENGTHS]
    return replace(candidate, rows=(*candidate.rows, *rows))


@pytest.fixture(scope="module")
def made():
    plain = comparison(list(NAMES), rates=[0.3, 0.9, 1.6, 2.9])  # found by three lengths, by two, by two, by one
    candidates = tuple(judged(candidate, number) for number, candidate in enumerate(plain.candidates))
    return replace(plain, candidates=candidates, tasks=(*plain.tasks, TASK))


def test_a_section_with_a_row_for_each_score_and_loss(made):
    known = predictions(made)
    section = prediction_part(known).numbers
    assert [row[:2] for row in section.rows] == [
        (score, loss)
        for score in ("passkey", "passkey answer", "repetition", "repetition answer")
        for loss in ("longppl", "perplexity", "context")
    ]
    assert section.rows[0][2:5] == (estimated(known[0].rho), estimated(known[0].at_one_length), "")
    assert section.rows[1][4] == estimated(known[1].lead)
    assert section.rows[0][5:] == ("5", "10")
    assert page_of(made).parts[-2].name == NAME


def test_the_figure_has_their_values(made):
    known = predictions(made)
    (figure,) = prediction_part(known).figures
    rows = figure.chart.panels[0].series
    assert [row.x[0] for row in rows] == pytest.approx([one.at_one_length.value for one in known], nan_ok=True)
    assert rows[0].value.startswith(f"{known[0].at_one_length.value:+.2f}".replace("-", "−"))
    assert len(figure.numbers) == 12 * 2 + 8


def test_results_and_page_have_them(made, tmp_path):
    page = write_report(made, tmp_path).read_text()
    assert f"<h2>{NAME}</h2>" in page
    assert "longppl_by_length" in page
    assert as_json(made)["predictions"] == [one.to_json() for one in predictions(made)]


def test_without_longppl_nothing_is_said():
    plain = comparison(list(NAMES))
    assert predictions(plain) == []
    assert as_json(plain)["predictions"] == []
    assert NAME not in [part.name for part in page_of(plain).parts]
    assert not math.isnan(plain.best.rank)
