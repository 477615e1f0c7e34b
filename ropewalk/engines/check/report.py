"""What `ropewalk check` answers: a verdict, the numbers behind it, a page of text, and JSON with stable keys."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from ropewalk.engines.check.mend import Difference
from ropewalk.engines.rules.rotation import EngineRotation, LengthRule
from ropewalk.methods.spec import Json

Verdict = Literal["same", "differs", "refused", "unknown"]
Kind = Literal["refused", "differs", "unknown", "warning"]
REPORT_WIDTH, FEW_PAIRS, INDENT = 100, 7, 12
MEANINGS: dict[Verdict, str] = {
    "same": "the engine computes what the checkpoint is meant to compute",
    "differs": "the engine computes something else",
    "refused": "the engine stops at the start, or answers with an error",
    "unknown": "what the engine computes here is not known",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to know, and what to do about it."""

    kind: Kind
    sentence: str
    remedy: str = ""

    def to_json(self) -> Json:
        """For programs."""
        return {"kind": self.kind, "sentence": self.sentence, "remedy": self.remedy}


@dataclass(frozen=True, kw_only=True)
class LayerCheck:
    """One type of layer at the length that is served: by the engine, as it was meant, by transformers."""

    layers: str  # the layer type; empty: all
    rope_type: str
    engine: EngineRotation | None
    meant: EngineRotation | None
    transformers: EngineRotation | None
    from_meant: tuple[Difference, ...] = ()
    from_transformers: tuple[Difference, ...] = ()

    def to_json(self) -> Json:
        """For programs."""
        sides = {"engine": self.engine, "meant": self.meant, "transformers": self.transformers}
        return {
            "layers": self.layers or "all",
            "rope_type": self.rope_type,
            "inv_freq": {name: None if side is None else side.inv_freq.tolist() for name, side in sides.items()},
            "temperature": {name: None if side is None else side.temperature for name, side in sides.items()},
            "logit_scale": {name: None if side is None else side.scale for name, side in sides.items()},
            "table_rows": None if self.engine is None else _whole(self.engine.rows),
            "differs_from_meant": [difference.to_json() for difference in self.from_meant],
            "differs_from_transformers": [difference.to_json() for difference in self.from_transformers],
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class EngineCheck:
    """The answer of `check`."""

    model: str
    engine: str
    version: str
    source: str  # what was read or run to know it
    target_len: int
    trained_len: int
    trained_source: str  # who says so, where the config does not
    made_for_len: int  # with its schedule
    stretched_by: str  # the schedule that was added after training
    length: LengthRule
    layers: tuple[LayerCheck, ...]
    ignored: tuple[str, ...]  # keys of the config that the engine does not read
    findings: tuple[Finding, ...]
    command: str  # the flags that serve this length

    @property
    def verdict(self) -> Verdict:
        """The gravest finding: refused, differs, unknown; same where there is none but warnings."""
        kinds = {finding.kind for finding in self.findings}
        order: tuple[Verdict, ...] = ("refused", "differs", "unknown")
        return next((kind for kind in order if kind in kinds), "same")

    @property
    def is_same(self) -> bool:
        """Whether the engine computes what was meant."""
        return self.verdict == "same"

    def to_json(self) -> Json:
        """Everything, with every pair."""
        return {
            "model": self.model,
            "engine": self.engine,
            "version": self.version,
            "source": self.source,
            "verdict": self.verdict,
            "target_len": self.target_len,
            "trained_len": self.trained_len,
            "trained_source": self.trained_source,
            "made_for_len": self.made_for_len,
            "stretched_by": self.stretched_by,
            "allowed_len": _whole(self.length.allowed),
            "default_len": self.length.default,
            "layers": [layer.to_json() for layer in self.layers],
            "ignored": list(self.ignored),
            "findings": [finding.to_json() for finding in self.findings],
            "flags": self.command,
        }

    def __repr__(self) -> str:
        name = f"{self.engine} {self.version} at {self.target_len:,} tokens"
        return f"<EngineCheck: {name}: {self.verdict}; print it for everything>"

    def _repr_html_(self) -> str:
        summary = escape(repr(self)[1:-1].partition(";")[0])
        return f"<details><summary>{summary}</summary><pre>{escape(str(self))}</pre></details>"

    def __str__(self) -> str:
        head = f"{self.verdict}: {MEANINGS[self.verdict]}"
        name = f"{self.engine} {self.version} with {self.model} at {self.target_len:,} tokens"
        blocks = [[head, name], self._facts(), *map(_table, self.layers), self._found()]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def _facts(self) -> list[str]:
        allowed = "any length" if math.isinf(self.length.allowed) else f"{self.length.allowed:,.0f} tokens"
        rows = [("length", f"{allowed} allowed, {self.length.default:,} without flags")]
        added = f", without a schedule; {self.stretched_by} stretches it to {self.made_for_len:,}"
        came = "" if all(layer.rope_type == "default" for layer in self.layers) else ", with the checkpoint's schedule"
        rows += [("trained on", f"{self.trained_len:,} tokens{added if self.stretched_by else came}")]
        rows += [("", f"as said by {self.trained_source}")] if self.trained_source else []
        rows += [("not read", ", ".join(self.ignored))] if self.ignored else []
        rows += [("known from", self.source), ("flags", self.command)]
        return [line for name, text in rows if text for line in _row(name, text)]

    def _found(self) -> list[str]:
        return [line for finding in self.findings for line in _lines_of(finding)]


def _table(check: LayerCheck) -> list[str]:
    """A few pairs of one type of layer."""
    engine, meant = check.engine, check.meant
    if engine is None:
        return []
    ends = "" if math.isinf(engine.rows) else f", a table of {engine.rows:,.0f} positions"
    per_side = f" (queries and keys x {math.sqrt(engine.scale):.4f} each)" if 0 < engine.scale != 1 else ""
    named = f"{check.layers or 'all layers'}: {check.rope_type}, logits x {engine.scale:.4f}{per_side}{ends}"
    lines = [named, f"{'pair':>6}{'engine':>16}{'meant':>16}   radians per position"]
    for pair in _some_pairs(len(engine.inv_freq), [difference.pair for difference in check.from_meant]):
        known = "-" if meant is None or pair >= len(meant.inv_freq) else f"{float(meant.inv_freq[pair]):.6g}"
        lines.append(f"{pair:>6}{float(engine.inv_freq[pair]):>16.6g}{known:>16}")
    return [*lines, *_against_transformers(check)]


def _against_transformers(check: LayerCheck) -> list[str]:
    if check.transformers is None:
        return []
    said = "; ".join(map(str, check.from_transformers))
    return _row("", f"unlike transformers: {said}") if said else _row("", "transformers computes the same")


def _some_pairs(pairs: int, marked: Sequence[int | None]) -> list[int]:
    """Some pairs of a table, with those that differ most."""
    step = max((pairs - 1) // (FEW_PAIRS - 1), 1)
    some = {*range(0, pairs, step), pairs - 1, *(pair for pair in marked if pair is not None and pair < pairs)}
    return sorted(some)


def _lines_of(finding: Finding) -> Iterator[str]:
    yield from _row(finding.kind, finding.sentence)
    if finding.remedy:
        yield f"{'':<{INDENT}}-> {finding.remedy}"  # a command stays on one line, to be copied


def _row(name: str, text: str) -> list[str]:
    first, *rest = textwrap.wrap(text, REPORT_WIDTH - INDENT, break_long_words=False, break_on_hyphens=False) or [""]
    return [f"{name:<{INDENT}}{first}".rstrip(), *(f"{'':<{INDENT}}{line}" for line in rest)]


def _whole(length: float) -> int | None:
    return None if math.isinf(length) else int(length)
