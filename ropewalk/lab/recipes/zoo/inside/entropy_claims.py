"""What sources say of the entropy of attention, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ropewalk.evaluation.metrics.intervals import Estimate, crossed
from ropewalk.lab.claims import NATS, NOT_MEASURED, ONE_SEED, Claim, JudgedClaim, judge

AXES = ("keys", "entropy of attention, nats")
PLAIN, LOG_N = "rope", "rope_under_log_n"


class EntropyTerm(NamedTuple):
    """The mean entropy of a method's queries in the last half of so many trained lengths, in a sum."""

    weight: float
    method: str
    times: int

    def __str__(self) -> str:
        """Without its weight."""
        return f"{self.method} at {self.times}x"


def _growth(weight: float, method: str, first: int = 1, last: int = 8) -> tuple[EntropyTerm, ...]:
    return EntropyTerm(weight, method, last), EntropyTerm(-weight, method, first)


CLAIMS = (
    Claim("entropy-grows", "The entropy of attention grows with the number of keys: from 1x to 2x, to 4x and to 8x.",
          "arXiv:2308.16137", tuple(_growth(1, PLAIN, last // 2, last) for last in (2, 4, 8)), theirs="a curve"),
    Claim("log-n-lowers-entropy", "Under log-n, without training, the entropy of attention grows less with the number "
          "of keys: from 1x to 8x.", "kexue.fm/8823", ((*_growth(1, PLAIN), *_growth(-1, LOG_N)),)),
    Claim("log-n-keeps-entropy", "Under log-n, without training, the entropy of attention stays: from 1x to 8x it "
          "changes by at most a tenth of what it does without.", "kexue.fm/8823",
          tuple((*_growth(0.1, PLAIN), *_growth(sign, LOG_N)) for sign in (-1, 1)), theirs="it stays, by design"),
)  # fmt: skip


class Entropies:
    """The entropies of one model by text and row; the last row sees eight trained lengths."""

    def __init__(self, measured: Mapping[str, Any]) -> None:
        self.keys: list[float] = measured["keys"]
        self._texts: list[list[float]] = measured["texts"]
        self._trained_len = self.keys[-1] / 8

    def of_texts(self, times: int) -> list[float]:
        """The mean of the rows in the last half of a trained length, for each text."""
        last = times * self._trained_len
        rows = [n for n, count in enumerate(self.keys) if last - self._trained_len / 2 < count <= last]
        return [sum(text[n] for n in rows) / len(rows) for text in self._texts]

    def of_row(self, row: int) -> list[float]:
        """One row, for each text."""
        return [text[row] for text in self._texts]


Measured = Mapping[tuple[str, int], Entropies]  # by method and seed


def entropy_verdicts(models: Sequence[Mapping[str, Any]]) -> list[JudgedClaim]:
    """What the models say whose entropies were measured."""
    measured = {
        (model["method"], model["seed"]): Entropies(model["entropies"]) for model in models if "entropies" in model
    }
    return [_verdict(claim, measured) for claim in CLAIMS]


def _verdict(claim: Claim, measured: Measured) -> JudgedClaim:
    methods = dict.fromkeys(term.method for terms in claim.sums for term in terms)
    seeds = sorted(set.intersection(*({seed for name, seed in measured if name == one} for one in methods)))
    if len(seeds) < 2:
        return JudgedClaim(claim=claim, word=ONE_SEED if seeds else NOT_MEASURED, unit=NATS)
    sums = [crossed([_sum(terms, measured, seed) for seed in seeds]) for terms in claim.sums]
    return judge(claim, sums, NATS, AXES, {name: _curve(name, measured, seeds) for name in methods})


def _sum(terms: Sequence[EntropyTerm], measured: Measured, seed: int) -> list[float]:
    """For each text."""
    parts = [[term.weight * x for x in measured[term.method, seed].of_texts(term.times)] for term in terms]
    return [sum(of_text) for of_text in zip(*parts, strict=True)]


def _curve(method: str, measured: Measured, seeds: Sequence[int]) -> list[tuple[float, Estimate]]:
    """By the number of keys."""
    keys = measured[method, seeds[0]].keys
    return [(count, crossed([measured[method, seed].of_row(row) for seed in seeds])) for row, count in enumerate(keys)]
