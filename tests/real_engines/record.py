"""What was measured with an engine: one JSON file for each, from which docs/engines.md is made."""

import json
from typing import NamedTuple

import torch


class Difference(NamedTuple):
    """The largest difference of log-probabilities, within the trained length and beyond it."""

    inside: float
    beyond: float

    @property
    def largest(self):
        return max(self.inside, self.beyond)


def difference(ours, theirs, trained, at=None):
    """Between two tables of log-probabilities, token by token; `at`: the ids of `theirs`, if it is a selection."""
    ours = torch.as_tensor(ours)
    ours = ours if at is None else ours.gather(-1, torch.as_tensor(at))
    gap = (ours - torch.as_tensor(theirs)).abs()
    assert gap.isfinite().all(), "the engine answered with numbers that are none"
    gap = gap.amax(-1)
    beyond = float(gap[trained:].max()) if len(gap) > trained else 0.0
    return Difference(float(gap[:trained].max()), beyond)


class Record:
    """Rows of one engine: a pair that ran, with its difference, or one that was refused, with the reason."""

    def __init__(self, engine, version):
        self.engine, self.version, self.rows = engine, version, []

    def ran(self, architecture, method, dtype, gap, bound, **more):
        """A pair that ran: `more` is a kind (native, lowered, frozen, plugin), tokens, or a note."""
        measured = {"inside": _rounded(gap.inside), "beyond": _rounded(gap.beyond), "bound": _rounded(bound)}
        self._row(architecture, method, dtype, **measured, **more)

    def read(self, name, method, dtype, gaps, greedy, bound, **more):
        """A real model's text: the mean and the largest difference, and what became of the tokens that were written."""
        measured = {"mean": _rounded(gaps.mean()), "largest": _rounded(gaps.max()), "greedy": greedy, "bound": bound}
        self._row(name, method, dtype, **measured, **more)

    def refused(self, architecture, method, reason):
        """A pair that the export refuses, with its sentence."""
        self._row(architecture, method, "", refused=reason)

    def _row(self, architecture, method, dtype, **said):
        self.rows.append({"architecture": architecture, "method": method, "dtype": dtype, **said})

    def write(self, folder):
        """Into the engine's file: a row replaces the one of the same pair, and one above its bound is left out.

        Remove the file first to be rid of pairs that are no longer run.
        """
        path = folder / f"{self.engine.replace('.', '_')}.json"
        before = json.loads(path.read_text())["rows"] if path.exists() else []
        good = [row for row in self.rows if "refused" in row or _figure(row) < row["bound"]]
        refused = {_pair(row)[:2]: "refused" in row for row in good}  # what runs now is refused no more, and vice versa
        kept = [row for row in before if refused.get(_pair(row)[:2], "refused" in row) == ("refused" in row)]
        rows = list({_pair(row): row for row in [*kept, *good]}.values())
        folder.mkdir(parents=True, exist_ok=True)
        lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
        head = f'"engine": {json.dumps(self.engine)}, "version": {json.dumps(self.version)}'
        path.write_text(f'{{{head}, "rows": [\n  {lines}\n]}}\n')


def _pair(row):
    return row["architecture"], row["method"], row["dtype"], row["tokens"] if "mean" in row else None


def _figure(row):
    return row["mean"] if "mean" in row else max(row["inside"], row["beyond"])


def _rounded(value):
    return float(f"{value:.1e}")
