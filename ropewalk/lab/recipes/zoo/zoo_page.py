"""The zoo's results as a page: tables with their spread, the sources' figures beside them, a verdict on every claim."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ropewalk.evaluation.metrics.intervals import Estimate, crossed

ACCURACY, LOSS, OF_TEXTS = "last_accuracy", "last_loss", "last_accuracy_of_texts"
RULES = (
    "A claim is a bound for a sum of accuracies, in the source's own words; the number is how far the sum is above it, "
    "with its 95 % interval over seeds and texts. *Reproduced*: the whole interval is above 0. *Not reproduced*: it is "
    "below. *Not settled*: it includes 0. To lose nothing is to lose less than half a point."
)

# Next-token accuracy in percent as the sources give it, for models trained at 512: at 1x, 2x, 4x, 8x, and 8x repeated.
SOURCES = {
    "rope": ("kexue.fm/9577; 9708", (52.37, 33.15, 22.85, 17.87), 24.17),
    "qk_bias": ("kexue.fm/9577", (52.75, 50.99, 45.25, 39.55), None),
    "hwfa": ("kexue.fm/9603", (48.70, None, None, 48.15), 80.84),
    "hwfa_rerope": ("kexue.fm/9731", (49.46, None, None, 49.36), 84.43),
    "key_norm": ("kexue.fm/9859", (None, None, None, 47.69), 61.08),
}
LEARNED = 0.1  # accuracy at 1x below which a model is evidence for no claim
NOTHING = 0.005  # half a point: what HWFA loses in its article, which calls that keeping all
A_POINT = 0.01


class ZooFigures:
    """The measurements, by method, seed, kind and length."""

    def __init__(self, models: list[dict[str, Any]]) -> None:
        self._of = {
            (model["method"], model["seed"], row["kind"], row["times"]): row
            for model in models
            for row in model["figures"]
        }
        self.methods = list(dict.fromkeys(model["method"] for model in models))
        self.seconds = {name: [m["cpu_seconds"] for m in models if m["method"] == name] for name in self.methods}

    def seeds(self, *methods: str) -> list[int]:
        """Seeds for which all of these methods are measured."""
        of_methods = [{seed for method, seed, *_ in self._of if method == name} for name in methods]
        return sorted(set.intersection(*of_methods)) if of_methods else []

    def all(self, method: str, times: int, kind: str, what: str) -> list[float]:
        """One figure for every seed."""
        return [float(self._of[method, seed, kind, times][what]) for seed in self.seeds(method)]

    def sum(self, terms: Sequence[AccuracyTerm]) -> Estimate:
        """A sum of accuracies, with its interval over the seeds and texts that all of them have."""
        seeds = self.seeds(*{term.method for term in terms})
        return crossed([list(map(math.fsum, self._of_texts(terms, seed))) for seed in seeds])

    def _of_texts(self, terms: Sequence[AccuracyTerm], seed: int) -> Iterator[tuple[float, ...]]:
        """The terms of each text."""
        rows = [(term.weight, self._of[term.method, seed, term.kind, term.times][OF_TEXTS]) for term in terms]
        return zip(*([weight * share for share in shares] for weight, shares in rows), strict=True)


class AccuracyTerm(NamedTuple):
    """An accuracy in a sum."""

    weight: float
    method: str
    times: int
    kind: str = "non-repeated"


class Claim(NamedTuple):
    """A claim of a source: it holds if each of some sums of accuracies is above a bound."""

    text: str
    source: str
    sums: tuple[tuple[AccuracyTerm, ...], ...]
    bound: float = 0.0

    @property
    def methods(self) -> list[str]:
        """The methods that it is about."""
        return list(dict.fromkeys(term.method for terms in self.sums for term in terms))


def _loses_at_most(bound: float, method: str, text: str, source: str) -> Claim:
    return Claim(text, source, ((AccuracyTerm(1, method, 8), AccuracyTerm(-1, method, 1)),), -bound)


def _better(method: str, than: str, text: str, source: str, *, kind: str = "non-repeated", at: Any = (8,)) -> Claim:
    sums = tuple((AccuracyTerm(1, method, times, kind), AccuracyTerm(-1, than, times, kind)) for times in at)
    return Claim(text, source, sums)


CLAIMS = (
    Claim("Bare RoPE fails beyond its length: at 8x at most a third of its accuracy is left.", "kexue.fm/9577",
          ((AccuracyTerm(1 / 3, "rope", 1), AccuracyTerm(-1, "rope", 8)),)),
    _better("qk_bias", "rope", "With biases on queries and keys accuracy falls later than without: it is higher at 2x, "
            "4x and 8x.", "kexue.fm/9577", at=(2, 4, 8)),
    Claim("With biases on queries and keys three quarters of the accuracy stay at 8x (the author: hard to reproduce).",
          "kexue.fm/9577", ((AccuracyTerm(1, "qk_bias", 8), AccuracyTerm(-3 / 4, "qk_bias", 1)),)),
    _loses_at_most(A_POINT, "hwfa", "HWFA loses about half a point at 8x, less than a whole one.", "kexue.fm/9603"),
    Claim("HWFA uses far text: repeated text becomes easier with length.", "kexue.fm/9603",
          ((AccuracyTerm(1, "hwfa", 8, "repeated"), AccuracyTerm(-1, "hwfa", 1, "repeated")),)),
    _loses_at_most(NOTHING, "hwfa_rerope", "With ReRoPE in its full layers HWFA loses nothing at 8x.", "kexue.fm/9731"),
    _better("hwfa_rerope", "hwfa", "It uses far text better than HWFA.", "kexue.fm/9731", kind="repeated"),
    _loses_at_most(NOTHING, "alibi", "ALiBi loses nothing at 8x.", "arXiv:2108.12409"),
    _loses_at_most(NOTHING, "kerple", "KERPLE loses nothing at 8x.", "arXiv:2205.09921"),
    _loses_at_most(NOTHING, "sandwich", "Sandwich loses nothing at 8x.", "arXiv:2212.10356"),
    _loses_at_most(NOTHING, "xpos", "XPos with blockwise attention loses nothing at 8x.", "arXiv:2212.10554"),
    _loses_at_most(NOTHING, "window", "A window whose layers together reach no further than the trained length loses "
                   "nothing at 8x.", "kexue.fm/9431"),
    _better("randomized_rotary", "rope", "Random positions on a rotary model beat plain rotation at 8x.",
            "arXiv:2305.16843"),
    _better("randomized_learned", "rope", "Random positions on learned ones beat plain rotation at 8x.",
            "kexue.fm/9444"),
    _better("nope", "rope", "No positions at all beat plain rotation at 8x.", "arXiv:2305.19466"),
    _better("log_n", "rope", "log-n, trained in, beats plain rotation at 8x.", "kexue.fm/8823"),
    _better("key_norm", "rope", "Norms on keys are higher than plain rotation at 2x, 4x and 8x.", "kexue.fm/9859",
            at=(2, 4, 8)),
    _loses_at_most(NOTHING, "key_norm", "With norms on keys nothing is lost at 8x.", "kexue.fm/9859"),
)  # fmt: skip


def zoo_page(results: Mapping[str, Any]) -> str:
    """The results of `ropewalk train zoo` as a page."""
    ours = ZooFigures(results["models"])
    parts = ["# The zoo: one small model under each trained-in method", _setting(results, ours)]
    for what, unit in ((ACCURACY, "Next-token accuracy in percent"), (LOSS, "Loss in nats per token")):
        for kind in ("non-repeated", "repeated"):
            parts += [f"## {unit}, {kind}", _table(ours, kind, what)]
    parts += ["## What the sources claim", RULES, *(f"- {_verdict(claim, ours)}" for claim in CLAIMS)]
    return "\n\n".join(parts) + "\n"


def _setting(results: Mapping[str, Any], ours: ZooFigures) -> str:
    plan, shape, read = results["plan"], results["shape"], results["read"]
    tokens = plan["steps"] * plan["rows"] * plan["accumulate"] * shape["trained_len"]
    seconds = [second for of_method in ours.seconds.values() for second in of_method]
    puzzles = ", ".join(f"{share:.0%} {name}" for name, share in read["puzzles"].items()) or "no puzzles"
    return (
        f"Generated by `ropewalk train zoo`. Each model: {shape['layers']} layers, {shape['width']} wide, "
        f"{shape['heads']} heads, vocabulary {shape['vocabulary']}, trained on {tokens / 1e6:.1f} M tokens of "
        f"`{read['corpus']}` ({puzzles}) in rows of {shape['trained_len']}, in {statistics.median(seconds):.0f} s of "
        f"one core (median). Measured on {read['texts']} held-out texts: non-repeated, the same tokens at every "
        f"length, as fewer and longer texts; repeated, their first {shape['trained_len']} tokens repeated. Figures are "
        f"means over the last {shape['trained_len'] - 1} tokens of each text and over seeds, with the spread from the "
        "lowest to the highest seed. "
        "Sources trained larger models at 512: compare the shape of their figures, not the values. key_norm is a Qwen3 "
        "(norms on queries as well), randomized_learned a GPT-2, all others are Llamas."
    )


def _table(ours: ZooFigures, kind: str, what: str) -> str:
    heads = [f"{times}x" for times in (1, 2, 4, 8)]
    stated = what == ACCURACY
    lines = [f"| method | seeds | {' | '.join(heads)} |" + (" sources |" if stated else "")]
    lines.append("|---|---|---|---|---|---|" + ("---|" if stated else ""))
    for name in ours.methods:
        cells = [_cell(ours.all(name, times, kind, what), percent=stated) for times in (1, 2, 4, 8)]
        row = f"| {name} | {len(ours.seeds(name))} | {' | '.join(cells)} |"
        lines.append(row + (f" {_stated(name, kind)} |" if stated else ""))
    return "\n".join(lines)


def _cell(values: list[float], *, percent: bool) -> str:
    scale, digits = (100, 1) if percent else (1, 2)
    mean, low, high = (scale * number for number in (statistics.fmean(values), min(values), max(values)))
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})" if len(values) > 1 else f"{mean:.{digits}f}"


def _stated(name: str, kind: str) -> str:
    """The source's figures for the method, 512 to 4,096."""
    if name not in SOURCES:
        return ""
    source, plain, repeats = SOURCES[name]
    if kind == "repeated":
        return f"8x {repeats} ({source})" if repeats else ""
    return " / ".join("-" if share is None else f"{share:.2f}" for share in plain) + f" ({source})"


def _verdict(claim: Claim, ours: ZooFigures) -> str:
    """Reproduced, not reproduced or not settled, by the intervals; with the figures."""
    seeds = ours.seeds(*claim.methods) if set(claim.methods) <= set(ours.methods) else []
    if not seeds:
        return f"{claim.text} ({claim.source}): not measured."
    if any(min(ours.all(name, 1, "non-repeated", ACCURACY)) < LEARNED for name in claim.methods):
        return f"{claim.text} ({claim.source}): **not judged**: the models have learned too little."
    estimates = [ours.sum(terms) for terms in claim.sums]
    intervals = ", ".join(_points(one, claim.bound) for one in estimates)
    figures = "; ".join(_figures_of(name, ours) for name in claim.methods)
    return f"{claim.text} ({claim.source}): **{judged(estimates, claim.bound)}** by {intervals}. {figures}."


def judged(estimates: Sequence[Estimate], bound: float) -> str:
    """In words: whether all are above the bound."""
    if all(one.low > bound for one in estimates):
        return "reproduced"
    return "not reproduced" if any(one.high < bound for one in estimates) else "not settled"


def _points(estimate: Estimate, bound: float) -> str:
    """How far an estimate is above the bound, in points of accuracy."""
    value, low, high = (100 * (number - bound) for number in (estimate.value, estimate.low, estimate.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] points"


def _figures_of(name: str, ours: ZooFigures) -> str:
    plain = [_cell(ours.all(name, times, "non-repeated", ACCURACY), percent=True) for times in (1, 8)]
    again = [_cell(ours.all(name, times, "repeated", ACCURACY), percent=True) for times in (1, 8)]
    return f"{name}: {plain[0]} at 1x, {plain[1]} at 8x; repeated {again[0]}, {again[1]}"
