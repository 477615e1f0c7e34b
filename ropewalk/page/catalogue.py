"""What the page says of methods and presets, read from their docstrings."""

from __future__ import annotations

from functools import cache

from ropewalk.extension.parsing import PRESETS
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.spec import Json


@cache
def catalogue() -> Json:
    """Presets by name, then methods by slot and name: the idea of each, and of a method its formula and source.

    catalogue()["yarn"]["idea"]
    """
    presets = {name: {"idea": page_of(preset).idea} for name, preset in PRESETS.items()}
    methods = {f"{slot}.{spec.name}": page_of(spec) for slot, content in SLOTS.items() for spec in content.methods}
    return {**presets, **{name: dict(zip(page._fields[:3], page, strict=False)) for name, page in methods.items()}}


def key_of(name: str) -> str:
    """The key of a name in a line: a preset, `slot.method`, or a method whose name no preset has."""
    return next((key for key in catalogue() if name in (key, key.partition(".")[2])), name)
