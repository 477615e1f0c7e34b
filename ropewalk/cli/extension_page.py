"""What one extension comes to: its formula, its parameters, how its pairs turn, which distances it shows."""

from __future__ import annotations

import math
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
from ropewalk.reach import Reach, furthest, shown
from ropewalk.record import parameter_rows
from ropewalk.spec import Spec

ROWS = 9  # of the table of turns
TIMES = 8  # trained lengths, where an extension needs a length and none is given
STEP = 4  # distances are shown at its powers


def detail(console: Console, line: str, facts: Facts, target: int | None) -> None:
    """Print an extension as it would serve such a model."""
    extension, told = _parsed(line, facts, target)
    extension.check_against(facts)
    length = told or int(min(facts.trained_len * _stretch(extension), 2**53))
    console.print(escape(extension.describe()), soft_wrap=True)
    if told != target:
        console.print(f"\nFor {length:,} tokens, {TIMES} times the trained length; --to says otherwise.")
    _parameters(console, extension)
    _turns(console, extension, facts, length)
    _distances(console, extension, length)


def _parsed(line: str, facts: Facts, target: int | None) -> tuple[Extension, int | None]:
    """The extension, and the length that it was told: one of our own where it needs one and none is given."""
    try:
        return parse(line, trained_len=facts.trained_len, target_len=target, layers=facts.layers), target
    except InvalidValue:
        if target is not None:
            raise
        assumed = TIMES * facts.trained_len
        return parse(line, trained_len=facts.trained_len, target_len=assumed, layers=facts.layers), assumed


def _stretch(extension: Extension) -> float:
    own = extension.theta.stretch
    return own if math.isfinite(own) else TIMES


def _all_specs(extension: Extension) -> list[tuple[str, Spec]]:
    """Every method in use, the layers' included, each once."""
    parts = [extension, *(own for _, own in extension.overrides)]
    found = [(slot, spec) for part in parts for slot, specs in part.specs.items() for spec in specs]
    return list(dict.fromkeys(found))


def _parameters(console: Console, extension: Extension) -> None:
    for slot, spec in _all_specs(extension):
        table = Table("parameter", "value", "must be", "meaning", title=f"{slot}.{spec.name}", title_justify="left")
        for row in parameter_rows(type(spec)):
            table.add_row(row.name, escape(str(getattr(spec, row.name))), row.rule, row.meaning)
        if table.row_count:
            console.print()
            console.print(table)


def _turns(console: Console, extension: Extension, facts: Facts, length: int) -> None:
    """How often pairs come round within the trained length: what the model has seen of each, and what it will see."""
    after = extension.theta.table(facts, length).inv_freq
    before = RoPE().table(replace(facts, rotary_dim=2 * len(after)), length).inv_freq
    reached = furthest(extension.spans, length - 1) + 1
    title = f"Turns per pair: trained on {facts.trained_len}, in a row of {length} tokens"
    table = Table(
        "pair", "wavelength", "turns trained", "turns in the row", "slowed by", title=title, title_justify="left"
    )
    step = max((len(after) - 1) // (ROWS - 1), 1)
    for pair in [*range(0, len(after) - 1, step), len(after) - 1]:
        theta, slowed = float(before[pair]), float(after[pair])
        table.add_row(
            str(pair),
            f"{2 * math.pi / theta:,.1f}",
            f"{facts.trained_len * theta / (2 * math.pi):,.2f}",
            f"{reached * slowed / (2 * math.pi):,.2f}",
            f"{theta / slowed:,.2f}" if slowed else "stands still",
        )
    console.print()
    console.print(table)


def _distances(console: Console, extension: Extension, length: int) -> None:
    """How far away the last row sees its keys, where that is not how far away they are."""
    true = sorted({0, length - 1, *(STEP**power for power in range(31) if STEP**power < length)})
    row = torch.tensor([length - 1])
    for reach in [spec for _, spec in _all_specs(extension) if isinstance(spec, Reach)]:
        seen = shown(reach, row, row - torch.tensor(true))[0].tolist()
        table = Table("distance", "shown as")
        for distance, each in zip(true, seen, strict=True):
            table.add_row(f"{distance:,}", "out of reach" if math.isnan(each) else f"{each:,.6g}")
        console.print(f"\n[italic]reach.{reach.name}: distances in a row of {length} tokens[/]")
        console.print(table)
