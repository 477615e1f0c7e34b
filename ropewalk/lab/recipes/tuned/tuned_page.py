"""The tuning table as a page: losses, passkeys, harm to short texts, and a verdict on every claim of the sources."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ropewalk.evaluation.metrics.intervals import Estimate, crossed, share
from ropewalk.lab.claims import NATS, NOT_MEASURED, Claim, JudgedClaim, judge

RULES = (
    "A claim is a bound for differences of losses, in nats a token; the number is how far a difference is above the "
    "bound, with its 95 % interval over seeds and texts. *Reproduced*: every interval is above 0. *Not reproduced*: "
    "one is below. *Not settled*: one includes 0."
)
NO_HARM = 0.02  # nats: a rise too small to report, as in `compare`
LONGEST = 8
AXES = ("length of the text, in trained lengths", "loss of its last tokens, nats")
TRAINED = ("none", "pi", "ntk", "yarn", "abf", "dynamic")  # with all keys at a rotary angle
FIFTH, ALL = "fifth", "all"  # of the steps; 0 is none


class LossTerm(NamedTuple):
    """A loss in a sum: of a method after a budget, at a multiple of the trained length."""

    weight: float
    method: str
    budget: str = ""
    times: int = LONGEST

    def __str__(self) -> str:
        """As part of a sum."""
        trained = {"": "not trained", FIFTH: "a fifth of the steps", ALL: "all steps"}[self.budget]
        return f"{self.weight:+g} {self.method}, {trained}, at {self.times}x"


class TunedFigures:
    """The measurements, by method, steps, seed and length."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._of = {
            (model["method"], model["steps"], model["seed"], row["times"]): row
            for model in results["models"]
            for row in model["figures"]
        }
        self.methods = list(dict.fromkeys(model["method"] for model in results["models"]))
        self.budgets = sorted({model["steps"] for model in results["models"]})
        self.times = sorted({times for *_, times in self._of})
        self._steps = {"": 0, FIFTH: max(1, results["plan"]["steps"] // 5), ALL: results["plan"]["steps"]}

    def seeds(self, method: str, steps: int) -> list[int]:
        """Seeds that are measured."""
        return sorted({seed for name, count, seed, _ in self._of if (name, count) == (method, steps)})

    def rows(self, method: str, steps: int, times: int) -> list[Mapping[str, Any]]:
        """What was measured at one length, for every seed."""
        return [self._of[method, steps, seed, times] for seed in self.seeds(method, steps)]

    def sum(self, terms: Sequence[LossTerm]) -> Estimate | None:
        """A sum of losses, with its interval over texts and over the seeds that all of them have; None without any.

        What is not trained is the same for every seed.
        """
        steps = [self._steps[term.budget] for term in terms]
        sets = [set(self.seeds(term.method, count)) for term, count in zip(terms, steps, strict=True)]
        trained = [seeds for seeds, count in zip(sets, steps, strict=True) if count]
        seeds = sorted(set.intersection(*(trained or sets)))
        if not seeds or not all(sets):
            return None
        return crossed([list(self._of_texts(terms, seed)) for seed in seeds])

    def curve(self, method: str, budget: str) -> list[tuple[float, Estimate]]:
        """The loss at every length, with its interval."""
        points = [(times, self.sum([LossTerm(1, method, budget, times)])) for times in self.times]
        return [(times, one) for times, one in points if one is not None]

    def label(self, method: str, budget: str) -> str:
        """A method and its budget, in words."""
        steps = self._steps[budget]
        return f"{method} after {steps:,} steps" if steps else f"{method}, not trained"

    def _of_texts(self, terms: Sequence[LossTerm], seed: int) -> Iterator[float]:
        """The sum for each text."""
        losses = []
        for term in terms:
            count = self._steps[term.budget]
            chosen = seed if count else self.seeds(term.method, 0)[0]
            row = self._of[term.method, count, chosen, term.times]
            losses.append([term.weight * loss for loss in row["losses"]])
        return map(math.fsum, zip(*losses, strict=True))


def _below(method: str, than: str, budget: str, times: int = LONGEST) -> tuple[LossTerm, ...]:
    """By how much the loss of one is below another's."""
    return LossTerm(1, than, budget, times), LossTerm(-1, method, budget, times)


def _best(method: str) -> tuple[tuple[LossTerm, ...], ...]:
    """By how much a trained method is below each of the others."""
    return tuple(_below(method, other, ALL) for other in TRAINED if other != method)


SHORT = LossTerm(1, "none", "", 1)  # the base model within its trained length
CLAIMS = (
    Claim("ntk-untrained", "Without training NTK reads 8x better than PI.", "kexue.fm/9675",
          (_below("ntk", "pi", ""),)),
    Claim("dynamic-short", "Without training dynamic NTK leaves short texts as they are.", "kexue.fm/9675",
          ((SHORT, LossTerm(-1, "dynamic", "", 1)),), -NO_HARM),
    Claim("yarn-untrained", "Without training YaRN reads 8x better than PI and NTK.", "arXiv:2309.00071",
          (_below("yarn", "pi", ""), _below("yarn", "ntk", ""))),
    Claim("pi-1000-steps", "With all steps PI reads 8x as well as the base model reads its own length.",
          "arXiv:2306.15595", ((SHORT, LossTerm(-1, "pi", ALL)),), theirs="1,000 steps for 16x"),
    Claim("pi-needs-steps", "PI needs all steps: after a fifth of them its loss at 8x is higher by more than 0.02.",
          "kexue.fm/9675", ((LossTerm(1, "pi", FIFTH), LossTerm(-1, "pi", ALL)),), NO_HARM),
    Claim("pi-harm", "PI with all steps harms short texts by at most 0.02.", "arXiv:2306.15595",
          ((SHORT, LossTerm(-1, "pi", ALL, 1)),), -NO_HARM, theirs="tasks of the old length are unharmed"),
    Claim("pi-or-none", "PI beats training without a schedule at 8x, with a fifth of the steps and with all.",
          "arXiv:2306.15595", (_below("pi", "none", FIFTH), _below("pi", "none", ALL))),
    Claim("yarn-best", "Trained, YaRN is the best at 8x.", "arXiv:2309.00071", _best("yarn")),
    Claim("yarn-fewer-steps", "YaRN with a fifth of the steps reads 8x as well as PI with all.", "arXiv:2309.00071",
          ((LossTerm(1, "pi", ALL), LossTerm(-1, "yarn", FIFTH)),)),
    Claim("abf-best", "Trained, a larger base (ABF) is the best at 8x.", "arXiv:2309.16039", _best("abf")),
    Claim("drope-harm", "DroPE with all steps harms short texts by at most 0.02.", "arXiv:2512.12167",
          ((SHORT, LossTerm(-1, "drope", ALL, 1)),), -NO_HARM),
    Claim("drope-better", "DroPE with all steps reads 8x better than YaRN without training.", "arXiv:2512.12167",
          ((LossTerm(1, "yarn", ""), LossTerm(-1, "drope", ALL)),)),
)  # fmt: skip


def verdicts(results: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the results of `ropewalk train tuned` say of every claim."""
    ours = TunedFigures(results)
    return [_verdict(claim, ours) for claim in CLAIMS]


def tuned_page(results: Mapping[str, Any], judged_claims: Sequence[JudgedClaim]) -> str:
    """The results of `ropewalk train tuned` as a page."""
    ours = TunedFigures(results)
    parts = [
        "# Schedules without training, and with a little",
        _setting(results),
        "## Loss of the last tokens, nats",
        _table(ours, _loss),
        "## Harm to texts of the trained length: loss minus the base model's, nats [95 %]",
        _harms(ours),
        "## Passkeys found",
        _table(ours, _keys),
        "## What the sources claim",
        RULES,
        *(f"- {one.sentence}" for one in judged_claims),
    ]
    return "\n\n".join(parts) + "\n"


def _setting(results: Mapping[str, Any]) -> str:
    plan, read, length = results["plan"], results["read"], results["trained_len"]
    per_step = plan["rows"] * plan["accumulate"] * LONGEST * length
    puzzles = ", ".join(f"{part:.0%} {name}" for name, part in read["puzzles"].items() if part) or "no puzzles"
    return (
        f"Generated by `ropewalk train tuned`. The model `{read['model']}`, trained on {length:,} tokens, and then on "
        f"rows of {LONGEST * length:,} tokens of `{read['corpus']}` ({puzzles}): {per_step:,} tokens a step at a rate "
        f"of {plan['learning_rate']:g}. DroPE is trained at {length:,} tokens, on as many a step, and reads longer "
        f"texts under log-n. Losses are those of the same last {length // 2} tokens of {read['texts']} held-out texts, "
        f"after so much context; means over texts and seeds, with the spread from the lowest to the highest seed. "
        f"Passkeys: the share found of {read['passkeys']} for each length and seed; - where a text is too short."
    )


def _table(ours: TunedFigures, cell: Any) -> str:
    lines = [f"| method | steps | seeds | {' | '.join(f'{times}x' for times in ours.times)} |"]
    lines.append("|" + "---|" * (3 + len(ours.times)))
    for method in ours.methods:
        for steps in ours.budgets:
            if seeds := ours.seeds(method, steps):
                cells = [cell(ours.rows(method, steps, times)) for times in ours.times]
                lines.append(f"| {method} | {steps:,} | {len(seeds) if steps else '-'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _loss(rows: Sequence[Mapping[str, Any]]) -> str:
    means = [statistics.fmean(row["losses"]) for row in rows]
    spread = f" ({min(means):.2f} to {max(means):.2f})" if len(means) > 1 else ""
    return f"{statistics.fmean(means):.3f}{spread}"


def _keys(rows: Sequence[Mapping[str, Any]]) -> str:
    answers = [right for row in rows for right in row["passkeys"]]
    if not answers:
        return "-"
    right = share(sum(answers), len(answers))
    return f"{right.value:.0%} [{right.low:.0%}, {right.high:.0%}]"


def _harms(ours: TunedFigures) -> str:
    lines = ["| method | no steps | a fifth of the steps | all steps |", "|---|---|---|---|"]
    for method in ours.methods:
        sums = [ours.sum((LossTerm(1, method, budget, 1), SHORT._replace(weight=-1))) for budget in ("", FIFTH, ALL)]
        lines.append(f"| {method} | {' | '.join('-' if one is None else NATS.interval(one) for one in sums)} |")
    return "\n".join(lines)


def _verdict(claim: Claim, ours: TunedFigures) -> JudgedClaim:
    """Reproduced, not reproduced or not settled, by the intervals."""
    estimates = [one for one in map(ours.sum, claim.sums) if one is not None]
    if len(estimates) < len(claim.sums):
        return JudgedClaim(claim=claim, word=NOT_MEASURED, unit=NATS)
    read = dict.fromkeys((term.method, term.budget) for terms in claim.sums for term in terms)
    return judge(claim, estimates, NATS, AXES, {ours.label(*one): ours.curve(*one) for one in read})
