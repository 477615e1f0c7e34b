"""Which loss predicts the scores, in the report: a table with intervals, and a figure."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.measure.comparison.comparison import Comparison
from ropewalk.measure.comparison.predictors import Measured, Prediction, predict
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.drawing.build import IntervalRow, interval_chart
from ropewalk.measure.report.drawing.charts import ReportFigure
from ropewalk.measure.report.html_page import PagePart
from ropewalk.measure.report.tables import estimated
from ropewalk.measure.report.written_tables import PageTable

NAME = "which loss predicts the scores"
ABOUT = (
    "Rank correlation of losses with scores over all extensions and lengths beyond the trained one: -1 is a perfect"
    " prediction. Answer: minus the loss of the right answers, where shares are 0 or 1 for many. At one length: of the"
    " ranks within each length. LongPPL ahead: by how much LongPPL is closer to -1 at one length. Intervals are a"
    " bootstrap over extensions, wider where they are few."
)
HEAD = ("score", "loss", "rank correlation", "at one length", "LongPPL ahead by", "extensions", "points")


def predictions(comparison: Comparison) -> list[Prediction]:
    """Every score with every loss; empty where LongPPL was not measured."""
    measured: Measured = {
        candidate.line: {
            (row.task.title, row.length): {name: estimate.value for name, estimate in row.numbers.items()}
            for row in candidate.rows
        }
        for candidate in comparison.candidates
    }
    return predict(measured, comparison.trained_len)


def prediction_part(known: Sequence[Prediction]) -> PagePart:
    """The figure, and a row for each score and loss."""
    rows = tuple(
        (
            one.score,
            one.loss,
            estimated(one.rho),
            estimated(one.at_one_length),
            estimated(one.lead) if one.lead else "",
            str(one.extensions),
            str(one.rho.of),
        )
        for one in known
    )
    return PagePart(NAME, ABOUT, (_figure(known),), PageTable(HEAD, rows))


def _figure(known: Sequence[Prediction]) -> ReportFigure:
    """The correlations with their intervals, score by score."""
    losses = list(dict.fromkeys(one.loss for one in known))
    rows = [IntervalRow(f"{one.score}, {one.loss}", losses.index(one.loss), one.at_one_length) for one in known]
    across = "rank correlation of the loss with the score at one length"
    numbers = tuple(
        (one.score, one.loss, kind, *estimate)
        for one in known
        for kind, estimate in (("all points", one.rho), ("at one length", one.at_one_length), ("lead", one.lead))
        if isinstance(estimate, Estimate)
    )
    return ReportFigure(
        "loss_predicts_score",
        "Which loss predicts the scores?",
        "Over extensions, within each length: -1 where lower losses always go with higher scores.",
        interval_chart(rows, across=across, zero="no correlation"),
        ("score", "loss", "kind", "value", "low", "high", "points"),
        numbers,
    )
