"""Comparisons whose numbers are made by formulas, so that a drawing can be checked against them without a model."""

import math

import ropewalk as rw
from ropewalk.extension.notation import BARE
from ropewalk.measure.comparison.comparison import Candidate, Comparison
from ropewalk.measure.comparison.runner import ResultRow
from ropewalk.measure.comparison.verdict import verdict
from ropewalk.measure.metrics.intervals import Estimate, difference, means
from ropewalk.measure.tasks import Context, Damage, Passkey, Repetition

FACTS = rw.Facts(trained_len=64, head_dim=8, base=10_000.0)
LENGTHS = (64, 128, 256)
BINS = 16
HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "dynamic_yarn:factor=16,low_turns=1,high_turns=32,steps=4+log_n+a_name_that_does_not_end_soon_"
METHODS = ("rope", "pi:factor=4", "yarn:factor=4", "rerope:window=16", "window:window=16", "ntk:factor=4")


def curve(rate, text):
    """Losses by position: the base model's rise beyond the trained length (rate 1), others' by their rate."""
    at = [(n + 0.5) * LENGTHS[-1] / BINS for n in range(BINS)]
    return [2 + 0.3 * math.sin(n + text) + rate * max(0.0, x / 64 - 1) for n, x in enumerate(at)]


def loss(rate, length, text):
    """Of the last tokens at a length."""
    return 2 + 0.05 * text + rate * math.log2(length / 64)


def candidate(line, number, *, rate, texts=3, lengths=LENGTHS):
    """One candidate, every number of it."""
    extension = rw.parse(METHODS[number % len(METHODS)]) if line != BARE else rw.Extension()
    rows = []
    for length in lengths:
        samples = [{"loss": loss(rate, length, text), "accuracy": 0.5, "bits_per_byte": 1.0} for text in range(texts)]
        if length == lengths[-1]:
            samples = [{**sample, "curve": curve(rate, text)} for text, sample in enumerate(samples)]
        rows.append((Context(samples=texts), length, samples, {"loss": (0, math.inf)}))
        keys = [{"right": rate < length / 100, "depth": (n + 0.5) / 4, "loss": 1.0} for n in range(4)]
        rows.append((Passkey(samples=4), length, keys, {"right": (0, 1), "loss": (0, math.inf)}))
        copied = [{"accuracy": 0.9 - 0.1 * rate, "loss": 1.0}] * 2
        rows.append((Repetition(samples=2), length, copied, {"accuracy": (0, 1), "loss": (0, math.inf)}))
    harm = [{"loss": 0.01 * number * (n + 1), "kl": 0.1, "agreement": 0.9} for n in range(2)]
    rows.append(
        (Damage(samples=2), lengths[0], harm, {"loss": (-math.inf, math.inf), "kl": (0, 9), "agreement": (0, 1)})
    )
    rows = tuple(ResultRow(extension, task, n, means(some, **of), tuple(some), 1.0) for task, n, some, of in rows)
    long = [loss(rate, lengths[-1], text) for text in range(texts)]
    change = difference(long, [loss(1.0, lengths[0], text) for text in range(texts)])
    said = verdict(change, None, Estimate(1.0, 0.9, 1.0, 4))
    return Candidate(
        line=line, extension=extension, rows=rows, failures=(), change=change, over_window=change,
        cache_bytes=1024 * (number + 1), slowdown=1.0 + number / 10, verdict=said,
    )  # fmt: skip


def comparison(names, *, rates=None, texts=3, lengths=LENGTHS, model="small", corpus="stdlib"):
    """The base model, and extensions of these names; a rate above 0.1 breaks."""
    rates = rates or [0.02 * n - 0.05 for n in range(len(names))]
    candidates = [candidate(BARE, 0, rate=1.0, texts=texts, lengths=lengths)]
    for number, (name, rate) in enumerate(zip(names, rates, strict=True), 1):
        candidates.append(candidate(name, number, rate=rate, texts=texts, lengths=lengths))
    return Comparison(
        facts=FACTS,
        lengths=tuple(lengths),
        candidates=tuple(candidates),
        tasks=(Context(samples=texts), Repetition(samples=2), Passkey(samples=4), Damage(samples=2)),
        marks={"corpus": corpus, "weights": "abc"},
        made={"when": "2026-11-22T10:13:26+00:00", "model": model, "versions": {}},
    )
