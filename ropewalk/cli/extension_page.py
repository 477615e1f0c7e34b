"""One extension in detail: formula, parameters, rotations per pair, effective distances."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ropewalk.errors import InvalidValue
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import RoPE
from ropewalk.parsing import parse
from ropewalk.reach import Reach, effective_distances, furthest
from ropewalk.record import parameter_rows
from ropewalk.spec import Spec

ROWS = 9  # of the table of rotations
TIMES = 8  # default target, in trained lengths
STEP = 4  # the table of distances has its powers


def detail(console: Console, line: str, facts: Facts, target: int | None) -> None:
    """Print an extension for a model with these facts."""
    extension, assumed = _parsed(line, facts, target)
    extension.check_against(facts)
    length = assumed or int(min(facts.trained_len * _stretch(extension), 2**53))
    for row in extension.describe().splitlines():
        console.print(escape(_folded(row, console.width)), soft_wrap=True)
    if assumed != target:
        console.print(f"\nFor {length:,} tokens, {TIMES} times the trained length; --to changes that.")
    _parameters(console, extension)
    _rotations(console, extension, facts, length)
    _distances(console, extension, length)


def _folded(row: str, width: int) -> str:
    """A line of the description, folded with a deeper indent."""
    indent = " " * (len(row) - len(row.lstrip()) + 4)
    return textwrap.fill(row, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _parsed(line: str, facts: Facts, target: int | None) -> tuple[Extension, int | None]:
    """The extension and its target length: a default where it needs one and the caller has none."""
    try:
        return parse(line, trained_len=facts.trained_len, target_len=target, layers=facts.layers), target
    except InvalidValue:
        if target is not None:
            raise
        assumed = TIMES * facts.trained_len
        return parse(line, trained_len=facts.trained_len, target_len=assumed, layers=facts.layers), assumed


def _stretch(extension: Extension) -> float:
    stretch = extension.theta.stretch
    return stretch if math.isfinite(stretch) else TIMES


def _all_specs(extension: Extension) -> list[tuple[str, Spec]]:
    """All methods in use, those of single layers included, without repeats."""
    parts = [extension, *(override for _, override in extension.overrides)]
    specs = [(slot, spec) for part in parts for slot, methods in part.specs.items() for spec in methods]
    return list(dict.fromkeys(specs))


def _parameters(console: Console, extension: Extension) -> None:
    for slot, spec in _all_specs(extension):
        table = Table("parameter", "value", "must be", "meaning", title=f"{slot}.{spec.name}", title_justify="left")
        for row in parameter_rows(type(spec)):
            table.add_row(row.name, escape(str(getattr(spec, row.name))), row.rule, row.meaning)
        if table.row_count:
            console.print()
            console.print(table)


def _rotations(console: Console, extension: Extension, facts: Facts, length: int) -> None:
    """Rotations of pairs within the trained length and within the longer text."""
    after = extension.theta.table(facts, length).inv_freq
    before = RoPE().table(replace(facts, rotary_dim=2 * len(after)), length).inv_freq
    reached = furthest(extension.spans, length - 1) + 1
    by = ", by effective distances" if reached < length else ""
    title = f"Rotations per pair: trained on {facts.trained_len:,} tokens, in a text of {length:,}{by}"
    table = Table("pair", "wavelength", "in training", "in the text", "slowed by")
    step = max((len(after) - 1) // (ROWS - 1), 1)
    for pair in [*range(0, len(after) - 1, step), len(after) - 1]:
        theta, slowed = float(before[pair]), float(after[pair])
        table.add_row(
            str(pair),
            f"{2 * math.pi / theta:,.1f}",
            f"{facts.trained_len * theta / (2 * math.pi):,.2f}",
            f"{reached * slowed / (2 * math.pi):,.2f}",
            f"{theta / slowed:,.2f}" if slowed else "not rotated",
        )
    console.print(f"\n[italic]{title}[/]")
    console.print(table)


def _distances(console: Console, extension: Extension, length: int) -> None:
    """The effective distances of the last row, under reaches that change them."""
    true = sorted({0, length - 1, *(STEP**power for power in range(31) if STEP**power < length)})
    row = torch.tensor([length - 1])
    for reach in [spec for _, spec in _all_specs(extension) if isinstance(spec, Reach)]:
        effective = effective_distances(reach, row, row - torch.tensor(true))[0].tolist()
        table = Table("distance", "effective distance")
        for distance, counted in zip(true, effective, strict=True):
            table.add_row(f"{distance:,}", "out of reach" if math.isnan(counted) else f"{counted:,.6g}")
        console.print(f"\n[italic]reach.{reach.name}: distances in a text of {length:,} tokens[/]")
        console.print(table)
