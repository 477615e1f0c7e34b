"""What the page says of methods and presets, read from their docstrings."""

from __future__ import annotations

from functools import cache

from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import names_file
from ropewalk.extension.outside import method_on_line, offered
from ropewalk.extension.parsing import PRESETS
from ropewalk.extension.slots import SLOTS, slot_of
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.spec import Json

OURS = "ropewalk."  # begins the modules of our methods


@cache
def catalogue() -> Json:
    """Presets by name, then methods by slot and name: the idea of each, and of a method its formula and source.

    catalogue()["yarn"]["idea"]
    """
    presets = {name: {"idea": page_of(preset).idea} for name, preset in PRESETS.items()}
    methods = {f"{slot}.{spec.name}": page_of(spec) for slot, content in SLOTS.items() for spec in content.methods}
    return {**presets, **{name: dict(zip(page._fields[:3], page, strict=False)) for name, page in methods.items()}}


def pages_outside(extension: Extension) -> Json:
    """The same of the methods of an extension that are not Ropewalk's."""
    kinds = dict.fromkeys(type(spec) for spec in extension.methods)
    outside = {f"{slot_of(kind)}.{kind.name}": page_of(kind) for kind in kinds if not kind.__module__.startswith(OURS)}
    return {name: dict(zip(page._fields[:3], page, strict=False)) for name, page in outside.items()}


def key_of(name: str) -> str:
    """The key of a name in a line: a preset, `slot.method`, a method whose name no preset has, or one from outside."""
    known = next((key for key in catalogue() if name in (key, key.partition(".")[2])), "")
    kind = None if known else method_on_line(name) if names_file(name) else offered(name.rpartition(".")[2])
    return known or (name if kind is None else f"{slot_of(kind)}.{kind.name}")
