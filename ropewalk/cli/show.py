"""`ropewalk show`: what there is, and what one extension comes to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ropewalk import presets
from ropewalk.cli.models import To, target
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import RoPE
from ropewalk.notation import length
from ropewalk.pages import page_of
from ropewalk.parsing import parse
from ropewalk.record import parameter_rows
from ropewalk.slots import SLOTS
from ropewalk.spec import Spec

ROWS = 9  # of the table of turns


def show(
    extension: Annotated[str, typer.Argument(help="such as yarn:factor=8+log_n; nothing lists everything")] = "",
    trained_len: Annotated[str, typer.Option(help="of the model, e.g. 4096 or 4k")] = "4096",
    to: To = "",
    head_dim: Annotated[int, typer.Option(help="of the model")] = 128,
    base: Annotated[float, typer.Option(help="of the model's rotary frequencies")] = 10_000.0,
    layers: Annotated[int, typer.Option(help="of the model")] = 32,
    heads: Annotated[int, typer.Option(help="of the model")] = 32,
    kv_heads: Annotated[int | None, typer.Option(help="of the model; by default as many as heads")] = None,
    rotary_dim: Annotated[int | None, typer.Option(help="dimensions that turn; by default all")] = None,
) -> None:
    """Print the formula, the sources, the parameters and the turns per pair of an extension, or list everything."""
    console = Console(highlight=False)
    if not extension:
        _list(console)
        return
    facts = Facts(
        trained_len=length(trained_len, "--trained-len"),
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        base=base,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
    )
    wanted = target(to)
    shown = parse(extension, trained_len=facts.trained_len, target_len=wanted, layers=layers)
    shown.check_against(facts)
    console.print(escape(shown.describe()), soft_wrap=True)
    _parameters(console, shown)
    _turns(console, shown, facts, wanted)


def _list(console: Console) -> None:
    papers = Table("preset", "what it is", title="Papers and systems", title_justify="left")
    for preset in presets.ALL:
        papers.add_row(preset.__name__, escape(page_of(preset).idea))
    console.print(papers)
    for slot, (_, methods, *_) in SLOTS.items():
        table = Table("method", "what it is", title=f"{slot}/", title_justify="left")
        for method in methods:
            table.add_row(f"{slot}.{method.name}", escape(page_of(method).idea))
        console.print(table)


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


def _turns(console: Console, extension: Extension, facts: Facts, target: int | None) -> None:
    """How often pairs come round within the trained length: what the model has seen of each, and what it will see."""
    reached = extension.theta.stretch if math.isfinite(extension.theta.stretch) else 8
    row_length = target or int(min(facts.trained_len * reached, 2**53))
    after = extension.theta.table(facts, row_length).inv_freq
    before = RoPE().table(replace(facts, rotary_dim=2 * len(after)), row_length).inv_freq
    title = f"Turns per pair: trained on {facts.trained_len}, in a row of {row_length} tokens"
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
            f"{row_length * slowed / (2 * math.pi):,.2f}",
            f"{theta / slowed:,.2f}" if slowed else "stands still",
        )
    console.print()
    console.print(table)
