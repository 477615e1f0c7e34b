"""The report of `diagnose`: figures from inside a model, a table and a few sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.extension.extension import Extension
from ropewalk.measure.diagnostics.attention_weights import NEAR_KEYS, SINKS
from ropewalk.measure.diagnostics.diagnosis import DiagnosedSide, Diagnosis
from ropewalk.measure.diagnostics.pass_states import Curves
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.html_page import ReportPage, write_page
from ropewalk.measure.report.inside import headline, keys_of, parts
from ropewalk.measure.report.titles import corpus_of, date_of, model_of, texts
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.methods.facts import Facts

NOTES = (
    "within, beyond: queries at positions below the trained length, and from it on",
    "attention is measured for some queries of one text and averaged over heads; layers are counted from 0",
    "largest far logit: the largest of each layer, averaged over layers; within: keys at distances from a quarter of"
    " the trained length to all of it; beyond: keys further away",
)
DATA = "diagnosis.json"
MUCH = 1.5  # a factor that is worth a sentence


class WithinAndBeyond(NamedTuple):
    """A number within the trained length and beyond; NaN where there is none."""

    within: float
    beyond: float


def write_diagnosis(diagnosis: Diagnosis, folder: str | Path, *, command: str = "", pictures: str = "") -> Path:
    """The page, its figures as CSV and as `pictures`, and everything as JSON."""
    numbers = json.dumps(as_json(diagnosis, command), indent=1) + "\n"
    return write_page(page_of(diagnosis, command), Path(folder) / "diagnose.html", {DATA: numbers}, pictures)


def page_of(diagnosis: Diagnosis, command: str = "") -> ReportPage:
    """What the page says."""
    model, corpus, count = model_of(diagnosis.made), corpus_of(diagnosis.marks), diagnosis.texts
    names = [side.line for side in diagnosis.sides[1:]]
    under = f" under {', '.join(names)}" if names else ""
    return ReportPage(
        kind="ropewalk diagnose",
        title=f"{model}{under}, diagnosed on {texts(count)} of {corpus}",
        date=date_of(diagnosis.made),
        facts=[
            ("model", model),
            ("extension", ", ".join(names) or "none"),
            ("corpus", corpus),
            ("texts", str(count)),
            ("lengths", f"trained on {diagnosis.facts.trained_len:,} tokens, diagnosed at {diagnosis.length:,}"),
        ],
        advice=findings(diagnosis),
        headline=headline(diagnosis),
        table=numbers(diagnosis),
        table_name="Within the trained length and beyond",
        table_about="The mean of each number on either side of the trained length.",
        notes=NOTES,
        parts=parts(diagnosis),
        command=command,
        made={**diagnosis.made, **diagnosis.marks},
        data=DATA,
        keys={name_of(line): key for line, key in keys_of(diagnosis).items()},
    )


def title(diagnosis: Diagnosis) -> str:
    """What was diagnosed."""
    sides = " and ".join(name_of(side.line) for side in diagnosis.sides)
    return f"Trained on {diagnosis.facts.trained_len:,} tokens, diagnosed at {diagnosis.length:,}: {sides}"


def numbers(diagnosis: Diagnosis) -> PageTable:
    """Each number within the trained length and beyond, side by side."""
    trained = diagnosis.facts.trained_len
    head = [f"{name_of(side.line)}, {where} {trained:,}" for side in diagnosis.sides for where in ("within", "beyond")]
    rows = []
    for name, (digits, of) in MEASURES.items():
        numbers = [number for side in diagnosis.sides for number in of(side, diagnosis)]
        rows.append((name, *("-" if math.isnan(number) else f"{number:.{digits}f}" for number in numbers)))
    return PageTable(("mean", *head), tuple(rows))


def findings(diagnosis: Diagnosis) -> list[str]:
    """The main results, in sentences."""
    return [
        *(_angles(side, diagnosis) for side in diagnosis.sides),
        *(words for side in diagnosis.sides for words in (_logits(side, diagnosis), _near(side, diagnosis)) if words),
        _sinks(diagnosis),
    ]


def _angles(side: DiagnosedSide, diagnosis: Diagnosis) -> str:
    count, length = sum(pair.unseen for pair in side.pairs), f"{diagnosis.length:,}"
    pairs = f"{count} of {len(side.pairs)} pairs of dimensions meet" if count else "no pair of dimensions meets"
    return f"{name_of(side.line)}: {pairs} angles in {length} tokens that did not occur in training."


def _logits(side: DiagnosedSide, diagnosis: Diagnosis) -> str:
    """Of the layer whose logits grow most, where they do."""
    layers = [_largest(layer, side.growth.largest, diagnosis) for layer in range(len(side.growth.largest.layers))]
    rises = [layer.beyond / layer.within if layer.within > 0 else math.nan for layer in layers]
    worst = max(range(len(rises)), key=lambda layer: -math.inf if math.isnan(rises[layer]) else rises[layer])
    if not rises[worst] > MUCH:
        return ""
    within, beyond = layers[worst]
    trained = f"{diagnosis.facts.trained_len:,}"
    largest = f"up to {within:.0f} for keys at most {trained} away, up to {beyond:.0f} for keys beyond"
    return f"{name_of(side.line)}: logits of far keys exceed those of training, most in layer {worst}: {largest}."


def _near(side: DiagnosedSide, diagnosis: Diagnosis) -> str:
    """Of the layer whose attention on near keys falls most, where it does."""
    layers = [_around(Curves(side.last.at, (curve,)), diagnosis) for curve in side.last.layers]
    worst = min(range(len(layers)), key=lambda layer: layers[layer].beyond / max(layers[layer].within, 1e-9))
    within, beyond = layers[worst]
    if not beyond * MUCH < within:
        return ""
    falls = f"attention on the last {NEAR_KEYS} keys falls beyond the trained length, most in layer {worst}"
    return f"{name_of(side.line)}: {falls}: from {within:.0%} to {beyond:.0%}."


def _sinks(diagnosis: Diagnosis) -> str:
    kept, replaced, removed = (sum(losses) / len(losses) for losses in diagnosis.streams)
    taken = _around(diagnosis.sides[0].first, diagnosis)
    share = f"The first {SINKS} tokens get {taken.within:.1%} of the base model's attention within the trained length."
    losses = f"{kept:.2f} with them, {replaced:.2f} with line breaks in their place, {removed:.2f} without them"
    return f"{share} The loss of a stream is {losses}."


def _around(curves: Curves, diagnosis: Diagnosis) -> WithinAndBeyond:
    """The means of all layers' curves on either side of the trained length."""
    return _parted(curves.at, [sum(values) / len(values) for values in zip(*curves.layers, strict=True)], diagnosis)


def _parted(at: tuple[float, ...], curve: list[float], diagnosis: Diagnosis) -> WithinAndBeyond:
    trained = diagnosis.facts.trained_len
    parts = [[y for x, y in zip(at, curve, strict=True) if (x >= trained) == beyond] for beyond in (False, True)]
    return WithinAndBeyond(*(sum(part) / len(part) if part else math.nan for part in parts))


def _largest(layer: int, curves: Curves, diagnosis: Diagnosis) -> WithinAndBeyond:
    """The largest logit of a layer on either side of the trained length, without near keys."""
    trained = diagnosis.facts.trained_len
    far = [pair for pair in zip(curves.at, curves.layers[layer], strict=True) if pair[0] >= trained / 4]
    pairs = [pair for pair in far if not math.isnan(pair[1])]
    parts = [[y for x, y in pairs if (x >= trained) == beyond] for beyond in (False, True)]
    return WithinAndBeyond(*(max(part, default=math.nan) for part in parts))


def _loss(side: DiagnosedSide, diagnosis: Diagnosis) -> WithinAndBeyond:
    bins = len(side.losses)
    return _parted(tuple((n + 0.5) * diagnosis.length / bins for n in range(bins)), list(side.losses), diagnosis)


def _logit(side: DiagnosedSide, diagnosis: Diagnosis) -> WithinAndBeyond:
    layers = [_largest(layer, side.growth.largest, diagnosis) for layer in range(len(side.growth.largest.layers))]
    return WithinAndBeyond(*(sum(part) / len(part) for part in zip(*layers, strict=True)))


MEASURES: dict[str, tuple[int, Callable[[DiagnosedSide, Diagnosis], WithinAndBeyond]]] = {
    "loss, nats per token": (2, _loss),
    f"attention on the last {NEAR_KEYS} keys": (2, lambda side, diagnosis: _around(side.last, diagnosis)),
    f"attention on the first {SINKS} keys": (2, lambda side, diagnosis: _around(side.first, diagnosis)),
    "entropy, nats": (2, lambda side, diagnosis: _around(side.entropy, diagnosis)),
    "largest far logit": (1, _logit),
}


def as_json(diagnosis: Diagnosis, command: str = "") -> dict[str, Any]:
    """Every number except the points of the planes, which are in their CSV, and what is needed to repeat it."""
    stored: dict[str, Any] = _plain(diagnosis)
    return {"command": command, **stored, "changes": _plain(diagnosis.changes), "findings": findings(diagnosis)}


def _plain(value: Any) -> Any:
    """Records as mappings; NaN, which JSON does not have, as null."""
    if isinstance(value, Extension | Facts):
        return value.to_json() if isinstance(value, Extension) else _fields(value)
    if is_dataclass(value):
        return _fields(value)
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items() if name not in ("points", "positions")}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
