"""What sources say of the entropy of attention, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from studies.claims import ARTICLE_3, NATS, Claim, JudgedClaim
from studies.zoo.inside.by_seed import BySeed, Curve

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

    @property
    def label(self) -> str:
        """Of its curve."""
        return self.method


def _growth(weight: float, method: str, first: int = 1, last: int = 8) -> tuple[EntropyTerm, ...]:
    return EntropyTerm(weight, method, last), EntropyTerm(-weight, method, first)


CLAIMS = (
    Claim("entropy-grows", "The entropy of attention grows with the number of keys: from 1x to 2x, to 4x and to 8x.",
          "arXiv:2308.16137", tuple(_growth(1, PLAIN, last // 2, last) for last in (2, 4, 8)), theirs="a curve"),
    Claim("log-n-lowers-entropy", "Under log-n, without training, the entropy of attention grows less with the number "
          "of keys: from 1x to 8x.", "kexue.fm/8823", ((*_growth(1, PLAIN), *_growth(-1, LOG_N)),)),
    Claim("log-n-keeps-entropy", "Under log-n, without training, the entropy of attention stays constant: from 1x to "
          "8x it changes by at most a tenth of its change without log-n.", "kexue.fm/8823",
          tuple((*_growth(0.1, PLAIN), *_growth(sign, LOG_N)) for sign in (-1, 1)), theirs="it stays, by design"),
    Claim("yarn-smooths", "YaRN's temperature smooths attention: at 8x its entropy is higher than under NTK by parts "
          "alone.", ARTICLE_3,
          ((EntropyTerm(1, "rope_under_yarn", 8), EntropyTerm(-1, "rope_under_by_parts", 8)),),
          theirs="'smooths'",
          note="The article writes softmax(QK / t) and gives no t. YaRN's paper has sqrt(1 / t) = 0.1 ln(s) + 1, so t "
          "is below 1 and logits become larger. `yarn-extremes` is of the same sentence."),
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

    def curve(self) -> Curve:
        """By the number of keys."""
        return {count: [text[row] for text in self._texts] for row, count in enumerate(self.keys)}


def entropy_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say whose entropies were measured."""
    measured: BySeed[EntropyTerm, Entropies] = BySeed(
        models,
        "entropies",
        Entropies,
        lambda term, one: one.of_texts(term.times),
        lambda term, one: one.curve(),
        projects=projects,
        least=0,
    )
    return [measured.verdict(claim, NATS, AXES) for claim in CLAIMS]
