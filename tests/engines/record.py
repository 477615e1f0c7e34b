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
        measured = {"inside": _rounded(gap.inside), "beyond": _rounded(gap.beyond), "bound": bound}
        self._row(architecture, method, dtype, **measured, **more)

    def refused(self, architecture, method, reason):
        """A pair that the export refuses, with its sentence."""
        self._row(architecture, method, "", refused=reason)

    def _row(self, architecture, method, dtype, **said):
        self.rows.append({"architecture": architecture, "method": method, "dtype": dtype, **said})

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in self.rows)
        head = f'"engine": {json.dumps(self.engine)}, "version": {json.dumps(self.version)}'
        name = self.engine.replace(".", "_")
        (folder / f"{name}.json").write_text(f'{{{head}, "rows": [\n  {rows}\n]}}\n')


def _rounded(value):
    return float(f"{value:.1e}")
