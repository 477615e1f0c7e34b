"""`ropewalk show`: all methods, or one extension in detail."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ropewalk.cli.models import To, extension_argument, target
from ropewalk.cli.output import AsJson, print_json
from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import length
from ropewalk.extension.outside_code import METHODS, packages_of
from ropewalk.methods.docstrings import FACTORS, list_folder


def show(
    extension: Annotated[str, extension_argument("such as yarn:factor=8+log_n; empty lists everything")] = "",
    trained_len: Annotated[str, typer.Option(help="trained length of the model, such as 4096 or 4k")] = "4096",
    to: To = "",
    head_dim: Annotated[int, typer.Option(help="dimensions of a head")] = 128,
    base: Annotated[float, typer.Option(help="base of the model's rotary frequencies")] = 10_000.0,
    layers: Annotated[int, typer.Option(help="layers of the model")] = 32,
    heads: Annotated[int, typer.Option(help="query heads of a layer")] = 32,
    kv_heads: Annotated[int | None, typer.Option(help="key and value heads; by default as many as heads")] = None,
    rotary_dim: Annotated[int | None, typer.Option(help="dimensions that are rotated; by default all")] = None,
    cite: Annotated[
        bool, typer.Option("--cite", help="what to cite for the extension, in BibTeX, and nothing else")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print an extension's formula, sources, parameters, rotations per pair and distances, or list all methods.

    Without --to, an extension that says no factor of its own is shown for eight times the trained length.
    """
    console = Console(highlight=False)
    if cite:
        _cite(extension, as_json)
        return
    if not extension:
        print_json(_listed()) if as_json else _list(console)
        return
    from ropewalk.cli.extension_page import ShownExtension
    from ropewalk.methods.facts import Facts

    facts = Facts(
        trained_len=length(trained_len, "--trained-len"),
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        base=base,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
    )
    shown = ShownExtension.of(extension, facts, target(to))
    print_json(shown.to_json()) if as_json else shown.print(console)


def _cite(extension: str, as_json: bool) -> None:
    if not extension:
        remedy = "name one, as in ropewalk show yarn --cite"
        raise InvalidValue.because("--cite", "--cite is of an extension, and there is none", remedy=remedy)
    from ropewalk.extension.citations import cite

    bibtex = cite(extension)
    print_json({"line": extension, "bibtex": bibtex}) if as_json else typer.echo(bibtex, nl=False)


def _listed() -> dict[str, Any]:
    """Everything in one line each, from the files' docstrings."""
    presets = [{"name": name, "idea": page.idea, "source": page.source} for name, page in list_folder("presets")]
    methods = [{"slot": slot, "name": name, **page._asdict()} for slot in FACTORS for name, page in list_folder(slot)]
    outside = [{"name": name, "package": package} for name, package in packages_of(METHODS).items()]
    return {"presets": presets, "methods": methods, **({"outside": outside} if outside else {})}


def _list(console: Console) -> None:
    titles = {"presets": "Papers and systems", **{slot: f"{slot}/" for slot in FACTORS}}
    for folder, title in titles.items():
        preset = folder == "presets"
        table = Table("preset" if preset else "method", "what it is", title=title, title_justify="left")
        for name, page in list_folder(folder):
            table.add_row(name if preset else f"{folder}.{name}", escape(page.idea))
        console.print(table)
    if outside := packages_of(METHODS):
        table = Table("method", "package", title="of installed packages", title_justify="left")
        for name, package in outside.items():
            table.add_row(name, escape(package))
        console.print(table)
