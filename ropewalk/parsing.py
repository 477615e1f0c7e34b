"""From one line to an extension: a name is a preset, or `slot.method`, or a method whose name no preset has taken."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import reduce
from typing import Any

from ropewalk import presets
from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.extension import SLOTS, Extension, method
from ropewalk.notation import Term, read
from ropewalk.spec import Spec, build

PRESETS = {preset.__name__: preset for preset in presets.ALL}


def parse(
    text: str, *, trained_len: int | None = None, target_len: int | None = None, layers: int | None = None
) -> Extension:
    """The extension that a line such as `yarn:factor=4+log_n` names.

    What is known of the model and the target serves presets that derive their values from it; what the line says wins.
    """
    known = {"trained_len": trained_len, "target_len": target_len, "layers": layers}
    context = {name: value for name, value in known.items() if value is not None}
    return reduce(Extension.__add__, (_extension(term, context) for term in read(text)))


def _extension(term: Term, context: Mapping[str, int]) -> Extension:
    if term.name in PRESETS:
        return _preset(term, context)
    slot, name = _slot_and_name(term.name)
    spec = _spec(slot, Term(name, term.values))
    filled: dict[str, Any] = {slot: (spec,) if SLOTS[slot][2] else spec}
    return Extension(**filled)


def _preset(term: Term, context: Mapping[str, int]) -> Extension:
    preset = PRESETS[term.name]
    accepted = inspect.signature(preset).parameters
    for name in term.values:
        if name not in accepted:
            raise UnknownName(f"parameter of {term.name}", "one it has", name, known=accepted or ["(it has none)"])
    given = {**{name: value for name, value in context.items() if name in accepted}, **term.values}
    missing = [name for name, one in accepted.items() if one.default is inspect.Parameter.empty and name not in given]
    if missing:
        raise InvalidValue(missing[0], "given", None, remedy=f"write {term.name}:{missing[0]}=...")
    return preset(**given)


def _slot_and_name(name: str) -> tuple[str, str]:
    slot, dot, rest = name.partition(".")
    if dot:
        if slot not in SLOTS:
            raise UnknownName("slot", "one of the equation's", slot, known=SLOTS)
        return slot, rest
    slots = [slot for slot, (_, methods, _) in SLOTS.items() if name in [each.name for each in methods]]
    if len(slots) > 1:
        raise UnknownName("name", "unambiguous", name, known=[f"{slot}.{name}" for slot in slots])
    if not slots:
        methods = [f"{slot}.{each.name}" for slot, (_, methods, _) in SLOTS.items() for each in methods]
        raise UnknownName("name", "a preset or a method", name, known=[*PRESETS, *methods])
    return slots[0], name


def _spec(slot: str, term: Term) -> Spec:
    """The method, its nested methods taken from the same slot."""
    values: dict[str, Any] = {
        key: _spec(slot, value) if isinstance(value, Term) else value for key, value in term.values.items()
    }
    return build(method(slot, term.name), values)
