"""One extension in detail: formula, parameters, rotations per pair, effective distances."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from typing import NamedTuple

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import parse
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import RoPE
from ropewalk.methods.reach import Reach, effective_distances, furthest
from ropewalk.methods.record import parameter_rows
from ropewalk.methods.spec import Json, Spec, with_inner

ROTATION_ROWS = 9  # of the table of rotations
TIMES = 8  # default target, in trained lengths
DISTANCE_STEP = 4  # the table of distances has its powers


class RotatedPair(NamedTuple):
    """A pair of dimensions: its rotations within the trained length, and within the longer text."""

    pair: int
    wavelength: float
    turns_trained: float
    turns: float
    slowed_by: float  # infinite: not rotated


class ReachedKey(NamedTuple):
    """A key, as the last row of a text sees it."""

    reach: str
    distance: int
    effective: float  # NaN: out of reach


class ShownExtension(NamedTuple):
    """An extension as it is shown: for a model, and for the length of a text."""

    line: str
    extension: Extension
    facts: Facts
    length: int
    is_assumed: bool  # whether nobody asked for this length

    @classmethod
    def of(cls, line: str, facts: Facts, target: int | None) -> ShownExtension:
        """The extension of a line; a target length is assumed where neither it nor the line says one."""
        extension, length = _parsed(line, facts, target)
        extension.check_against(facts)
        stretch = _stretch(extension)
        if length is None and stretch > 1:
            return cls(line, extension, facts, int(min(facts.trained_len * stretch, 2**53)), False)
        return cls(line, extension, facts, length or TIMES * facts.trained_len, target is None)

    def print(self, console: Console) -> None:
        """Print its formula, parameters, rotations and distances."""
        for row in self.extension.describe().splitlines():
            console.print(escape(_folded(row, console.width)), soft_wrap=True)
        if self.is_assumed:
            console.print(f"\nFor {self.length:,} tokens, {TIMES} times the trained length; --to changes that.")
        _parameters(console, self.extension)
        _rotations(console, self)
        _distances(console, self)

    def to_json(self) -> Json:
        """The same, with every pair."""
        return {
            "line": self.line,
            "extension": self.extension.to_json(),
            "trained_len": self.facts.trained_len,
            "length": self.length,
            "description": self.extension.describe(),
            "methods": [_method(slot, spec) for slot, spec in _all_specs(self.extension)],
            "pairs": [pair._asdict() for pair in _pairs(self)],
            "distances": [key._asdict() for reach in _reaches(self.extension) for key in _keys(self, reach)],
        }


def _method(slot: str, spec: Spec) -> Json:
    rows = [{**row._asdict(), "value": str(getattr(spec, row.name))} for row in parameter_rows(type(spec))]
    return {"slot": slot, "name": spec.name, **page_of(type(spec))._asdict(), "parameters": rows}


def _folded(row: str, width: int) -> str:
    """A line of the description, folded with a deeper indent."""
    indent = " " * (len(row) - len(row.lstrip()) + 4)
    return textwrap.fill(row, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _parsed(line: str, facts: Facts, target: int | None) -> tuple[Extension, int | None]:
    """The extension and its target length: a default where it needs one and the caller has none."""
    try:
        return parse(
            line, trained_len=facts.trained_len, target_len=target, layers=facts.layers, key_heads=facts.groups
        ), target
    except InvalidValue:
        if target is not None:
            raise
        assumed = TIMES * facts.trained_len
        return parse(
            line, trained_len=facts.trained_len, target_len=assumed, layers=facts.layers, key_heads=facts.groups
        ), assumed


def _stretch(extension: Extension) -> float:
    stretch = extension.frequencies_or_rope.stretch
    return stretch if math.isfinite(stretch) else TIMES


def _all_specs(extension: Extension) -> list[tuple[str, Spec]]:
    """All methods in use, those inside others and of single layers included, without repeats."""
    parts = extension.parts
    specs = [(slot, spec) for part in parts for slot, methods in part.specs.items() for spec in methods]
    return list(dict.fromkeys((slot, part) for slot, spec in specs for part in with_inner(spec)))


def _parameters(console: Console, extension: Extension) -> None:
    for slot, spec in _all_specs(extension):
        table = Table("parameter", "value", "must be", "meaning", title=f"{slot}.{spec.name}", title_justify="left")
        for row in parameter_rows(type(spec)):
            table.add_row(row.name, escape(str(getattr(spec, row.name))), row.rule, row.meaning)
        if table.row_count:
            console.print()
            console.print(table)


def _pairs(shown: ShownExtension) -> list[RotatedPair]:
    """Every pair."""
    extension, facts, length, turn = shown.extension, shown.facts, shown.length, 2 * math.pi
    after = extension.frequencies_or_rope.table(facts, length).inv_freq
    before = RoPE().table(replace(facts, rotary_dim=2 * len(after)), length).inv_freq
    reached = _reached_by_pair(extension.reach_or_causal, length - 1, extension.turns(facts)) + 1
    return [
        RotatedPair(
            pair=pair,
            wavelength=turn / theta,
            turns_trained=facts.trained_len * theta / turn,
            turns=float(reached[pair]) * slowed / turn,
            slowed_by=theta / slowed if slowed else math.inf,
        )
        for pair, (theta, slowed) in enumerate(zip(before.tolist(), after.tolist(), strict=True))
    ]


def _reached_by_pair(reach: Reach, i: int, turns: Tensor) -> Tensor:
    """The largest effective distance of a row for each pair; `turns` is how often each turns in the trained length."""
    row, distances = torch.tensor([i]), []
    for span in reach.spans():
        start, stop = span.bounds(row)
        if bool(stop > start):
            distance = span.q_rotated(row, turns).double() - span.k_rotated(start, turns).double()
            distances.append(distance.flatten().expand(len(turns)))
    return torch.stack(distances).amax(0)


def _reached(shown: ShownExtension) -> float:
    """The largest effective distance in the text, and one."""
    return furthest(shown.extension.reach_or_causal, shown.length - 1) + 1


def _rotations(console: Console, shown: ShownExtension) -> None:
    """Rotations of a few pairs within the trained length and within the longer text."""
    pairs = _pairs(shown)
    by = ", by effective distances" if _reached(shown) < shown.length else ""
    texts = f"trained on {shown.facts.trained_len:,} tokens, in a text of {shown.length:,}"
    table = Table("pair", "wavelength", "in training", "in the text", "slowed by")
    step = max((len(pairs) - 1) // (ROTATION_ROWS - 1), 1)
    for row in [*pairs[:-1:step], pairs[-1]]:
        slowed = "not rotated" if math.isinf(row.slowed_by) else f"{row.slowed_by:,.2f}"
        table.add_row(str(row.pair), f"{row.wavelength:,.1f}", f"{row.turns_trained:,.2f}", f"{row.turns:,.2f}", slowed)
    console.print(f"\n[italic]Rotations per pair: {texts}{by}[/]")
    console.print(table)


def _reaches(extension: Extension) -> list[Reach]:
    return [spec for _, spec in _all_specs(extension) if isinstance(spec, Reach)]


def _keys(shown: ShownExtension, reach: Reach) -> list[ReachedKey]:
    """A few keys of the last row, with their effective distances."""
    last = shown.length - 1
    true = sorted({0, last, *(DISTANCE_STEP**power for power in range(31) if DISTANCE_STEP**power < shown.length)})
    row = torch.tensor([last])
    effective = effective_distances(reach, row, row - torch.tensor(true))[0].tolist()
    return [ReachedKey(reach.name, distance, counted) for distance, counted in zip(true, effective, strict=True)]


def _distances(console: Console, shown: ShownExtension) -> None:
    """The effective distances of the last row, under reaches that change them."""
    for reach in _reaches(shown.extension):
        several = any(span.pairs for span in reach.spans())
        table = Table("distance", "effective distance" + ", the largest of all pairs" * several)
        for key in _keys(shown, reach):
            counted = "out of reach" if math.isnan(key.effective) else f"{key.effective:,.6g}"
            table.add_row(f"{key.distance:,}", counted)
        console.print(f"\n[italic]reach.{reach.name}: distances in a text of {shown.length:,} tokens[/]")
        console.print(table)
