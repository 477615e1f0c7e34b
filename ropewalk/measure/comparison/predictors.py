"""Which loss predicts the scores: LongPPL and plain perplexity against every task with a score, over a comparison.

A point is an extension at a length beyond the trained one; within it no text is far. `rho` is the rank correlation over
all points, `at_one_length` the same with all numbers replaced by their ranks within their length, so that it cannot
come from lengths alone. Lower losses should go with higher scores: -1 is a perfect prediction. A score is the share
that a task gives, and, since shares are often 0 or 1 for many, minus the loss of the right answers. `lead` is by how
much closer to -1 LongPPL is at one length than another loss: the perplexity of the same texts, or the loss of the task
`context`.

Source: the question is Fang et al. 2025's, arXiv:2410.23771, sec. 4, there over models at one length, with Pearson's
correlation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.errors import DoesNotFit, Unreadable
from ropewalk.files import read_record
from ropewalk.measure.metrics.correlation import Groups, correlation_lead, rank_correlation, ranks
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.tasks import Context, Damage, LongPPL
from ropewalk.methods.spec import Json

LOSSES = {
    "longppl": (LongPPL.name, "longppl"),
    "perplexity": (LongPPL.name, "perplexity"),
    "context": ("context", "loss"),
}
SCORES = ("score", "right", "accuracy")  # a task's share is the first that it has
ANSWER = "answer"  # after a task's name: minus the loss of its answers
NO_SCORE = (Context.name, Damage.name, LongPPL.name)
FEWEST_EXTENSIONS = 4  # extensions; fewer say nothing of others

Numbers = Mapping[str, float]
Measured = Mapping[str, Mapping[tuple[str, int], Numbers]]  # by extension, then by task and length


class Prediction(NamedTuple):
    """How well a loss predicts a score."""

    loss: str
    score: str  # the task; with `answer`, minus the loss of its answers
    extensions: int
    rho: Estimate
    at_one_length: Estimate
    lead: Estimate | None  # of LongPPL over this loss, at one length; None for LongPPL itself

    def __str__(self) -> str:
        """One line."""
        at = f"{self.loss} and {self.score}: {_words(self.rho)}, at one length {_words(self.at_one_length)}"
        lead = f", LongPPL ahead by {_words(self.lead)}" if self.lead else ""
        return f"{at}{lead} ({self.extensions} extensions, {self.rho.of} points)"

    def to_json(self) -> Json:
        """All numbers."""
        return {
            "loss": self.loss,
            "score": self.score,
            "extensions": self.extensions,
            "rho": self.rho.to_json(),
            "at_one_length": self.at_one_length.to_json(),
            "lead": self.lead and self.lead.to_json(),
        }


def predictions_in(path: str | Path, *, without: Sequence[str] = ()) -> list[Prediction]:
    """From the `results.json` of a comparison, without the extensions that are named.

    for found in predictions_in("ropewalk-report/results.json"):
        print(found)  # longppl and passkey: -0.90 [-0.97, -0.80], at one length ...
    """
    results = read_record(Path(path), "the results.json of `ropewalk compare`")
    measured = {line: rows for line, rows in _read_results(results, str(path)).items() if line not in without}
    predictions = predict(measured, results.get("trained_len", 0))
    if not predictions:
        rule = f"results with longppl, a task with a score, and at least {FEWEST_EXTENSIONS} extensions"
        raise DoesNotFit("results", rule, f"{len(measured)} extensions in {path}")
    return predictions


def predict(measured: Measured, trained_len: int) -> list[Prediction]:
    """For every score, how well each loss predicts it; empty without LongPPL or with few extensions."""
    far = {
        line: {key: numbers for key, numbers in rows.items() if key[1] > trained_len} for line, rows in measured.items()
    }
    tasks = dict.fromkeys(task for rows in far.values() for task, _ in rows if task not in NO_SCORE)
    return [
        Prediction(
            loss, f"{task} {kind}".strip(), len(groups), *_both_correlations(groups, number), _lead(groups, number)
        )
        for task in tasks
        for kind in ("", ANSWER)
        if len(groups := _points(far, task, kind)) >= FEWEST_EXTENSIONS
        for number, loss in enumerate(LOSSES)
    ]


def _words(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _points(measured: Measured, task: str, kind: str) -> list[list[tuple[float, ...]]]:
    """For each extension, its points: length, the losses, and the score; lengths without all of them are left out."""
    groups = []
    for rows in measured.values():
        group = []
        for (name, length), numbers in rows.items():
            known = [rows.get((of, length), {}).get(number, math.nan) for of, number in LOSSES.values()]
            share = next((numbers[number] for number in SCORES if number in numbers), math.nan)
            score = -numbers.get("loss", math.nan) if kind == ANSWER else share
            if name == task and not any(map(math.isnan, (*known, score))):
                group.append((float(length), *known, score))
        groups.append(group)
    return [group for group in groups if group]


def _both_correlations(groups: Groups, loss: int) -> tuple[Estimate, Estimate]:
    """Over all points, and by ranks within each length."""
    return rank_correlation(groups, loss + 1, -1), rank_correlation(_ranks_within_lengths(groups), loss + 1, -1)


def _lead(groups: Groups, loss: int) -> Estimate | None:
    return correlation_lead(_ranks_within_lengths(groups), 1, loss + 1, -1) if loss else None


def _ranks_within_lengths(groups: Groups) -> list[list[tuple[float, ...]]]:
    """Every number as its rank among those of its length, minus the middle rank."""
    points = [point for group in groups for point in group]
    placed: dict[tuple[float, ...], tuple[float, ...]] = {}
    for length in {point[0] for point in points}:
        same = [point for point in points if point[0] == length]
        columns = [ranks(column) for column in zip(*same, strict=True)]
        middle = (len(same) + 1) / 2
        placed |= {point: tuple(column[n] - middle for column in columns) for n, point in enumerate(same)}
    return [[placed[point] for point in group] for group in groups]


def _read_results(results: Mapping[str, Any], path: str) -> Measured:
    """The values of a file of results."""
    try:
        return {
            candidate["line"]: {
                (row["task"], row["length"]): {
                    name: math.nan if estimate["value"] is None else float(estimate["value"])
                    for name, estimate in row["numbers"].items()
                }
                for row in candidate["rows"]
            }
            for candidate in results["candidates"]
        }
    except (KeyError, TypeError, AttributeError, ValueError) as wrong:
        raise Unreadable("results", "the results.json of `ropewalk compare`", path, remedy=repr(wrong)) from wrong
