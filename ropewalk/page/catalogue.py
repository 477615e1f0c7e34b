"""What the page says of methods and presets, read from their docstrings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ropewalk.errors import RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import names_file
from ropewalk.extension.outside import method_on_line, offered
from ropewalk.extension.parsing import PRESETS
from ropewalk.extension.slots import SLOTS, slot_of
from ropewalk.files import read_record
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.record import arguments, parameters
from ropewalk.methods.spec import Json, Spec
from ropewalk.page.typeset import mathml

OURS = "ropewalk."  # begins the modules of our methods
STYLE = re.compile(r' style="[^"]*"')  # of an element: the style sheet has it, and a server's policy forbids it here


@cache
def catalogue() -> Json:
    """Presets by name, then methods by slot and name: idea and parameters of each; of a method its formulas and source.

    An idea that web/ideas.zh.json has in Chinese stands beside the English one.

    catalogue()["yarn"]["idea"]
    """
    presets = {
        name: {"idea": page_of(preset).idea, "takes": list(arguments(preset))} for name, preset in PRESETS.items()
    }
    methods = {f"{slot}.{spec.name}": _page(spec) for slot, content in SLOTS.items() for spec in content.methods}
    chinese = read_record(Path(__file__).parent / "web" / "ideas.zh.json", "ideas in Chinese")
    return {name: page | {"chinese": chinese.get(name, "")} for name, page in {**presets, **methods}.items()}


def _page(kind: type[Spec]) -> Json:
    """Of a method what is told; and the formula set, unless somebody's has signs that ours do not."""
    page = page_of(kind)
    try:
        math = STYLE.sub("", mathml(page.formula)) if page.formula else ""
    except RopewalkError:
        math = ""
    takes = [parameter.name for parameter in parameters(kind)]
    return {"idea": page.idea, "takes": takes, "formula": page.formula, "source": page.source, "math": math}


def pages_outside(extension: Extension) -> Json:
    """The same of the methods of an extension that are not Ropewalk's."""
    kinds = dict.fromkeys(type(spec) for spec in extension.methods)
    return {f"{slot_of(kind)}.{kind.name}": _page(kind) for kind in kinds if not kind.__module__.startswith(OURS)}


def key_of(name: str) -> str:
    """The key of a name in a line: a preset, `slot.method`, a method whose name no preset has, or one from outside."""
    known = next((key for key in catalogue() if name in (key, key.partition(".")[2])), "")
    kind = None if known else method_on_line(name) if names_file(name) else offered(name.rpartition(".")[2])
    return known or (name if kind is None else f"{slot_of(kind)}.{kind.name}")
