"""From one line to an extension: a name is a preset, or `slot.method`, or a method whose name no preset has taken."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any

from ropewalk import presets
from ropewalk.errors import Conflict, InvalidValue, UnknownName
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.files import read_text
from ropewalk.notation import Term, read
from ropewalk.presets.lengths import require_whole
from ropewalk.slots import INSTEAD, SLOTS, method
from ropewalk.spec import Spec, build

PRESETS = {preset.__name__: preset for preset in presets.ALL}
CONTEXT = ("trained_len", "target_len", "layers")  # what a line need not say where it is known


def parse(
    text: str,
    *,
    trained_len: int | None = None,
    target_len: int | None = None,
    layers: int | None = None,
    original_len: int | None = None,
) -> Extension:
    """The extension that a line such as `yarn:factor=4+log_n` names, or that a file such as `extension.json` holds.

    What is known of the model and the target serves presets that derive their values from it; what the line says wins.
    A line with `+instead` takes the place of the model's own schedule: its lengths count from `original_len`.
    """
    if isinstance(text, str) and text.endswith(".json"):
        return _stored(Path(text))
    require_whole("original_len", original_len)
    terms = read(text)
    begun = original_len or trained_len if _has_instead(terms) else trained_len
    known = dict(zip(CONTEXT, (begun, target_len, layers), strict=True))
    for name, value in known.items():
        require_whole(name, value)
    context = {name: value for name, value in known.items() if value is not None}
    return reduce(Extension.__add__, (_extension(term, context) for term in terms))


def stands_instead(text: str) -> bool:
    """Whether a line takes the place of the model's own schedule."""
    return _has_instead([] if text.endswith(".json") else read(text))


def _has_instead(terms: Sequence[Term]) -> bool:
    return any(term.name == INSTEAD for term in terms)


def parse_for(text: str, facts: Facts, target_len: int | None) -> Extension:
    """The extension that a line names for a model."""
    lengths = {"trained_len": facts.trained_len, "original_len": facts.original_len, "target_len": target_len}
    return parse(text, layers=facts.layers, **lengths)


def _stored(file: Path) -> Extension:
    """What `to_json`, or `ropewalk fit`, has written."""
    return Extension.from_json(read_text(file, "extension", "a line, or a file of an extension"))


def _extension(term: Term, context: Mapping[str, int]) -> Extension:
    if term.name == INSTEAD:
        return _instead(term)
    if term.name in PRESETS:
        return _preset(term, context)
    slot, name = _slot_and_name(term.name)
    spec = _spec(slot, Term(name, term.values))
    filled: dict[str, Any] = {slot: (spec,) if SLOTS[slot].several else spec}
    return Extension(**filled)


def _instead(term: Term) -> Extension:
    for name in term.values:
        raise UnknownName("parameter", name, known=(), owner=INSTEAD)
    return Extension(instead=True)


def _preset(term: Term, context: Mapping[str, int]) -> Extension:
    preset = PRESETS[term.name]
    accepted = inspect.signature(preset).parameters
    for name in term.values:
        if name not in accepted:
            raise _unknown_parameter(term.name, name, list(accepted))
    for name in CONTEXT:
        stated, known = term.values.get(name), context.get(name)
        require_whole(name, stated)
        if stated is not None and known is not None and stated != known:
            raise Conflict(f"{term.name}:{name}", f"what is known ({known})", stated, remedy=f"leave {name} out")
    given = {**{name: value for name, value in context.items() if name in accepted}, **term.values}
    missing = [name for name, one in accepted.items() if one.default is inspect.Parameter.empty and name not in given]
    if missing:
        raise InvalidValue.because(
            missing[0], f"{term.name} needs {missing[0]}", remedy=f"write {term.name}:{missing[0]}=..."
        )
    return preset(**given)


def _unknown_parameter(preset: str, name: str, accepted: list[str]) -> UnknownName:
    """A refusal that leads on to the method of the preset's name, which may have the parameter."""
    own = [f"{slot}.{preset}" for slot, (_, methods, *_) in SLOTS.items() if preset in [each.name for each in methods]]
    remedy = f"the method alone is {own[0]}:..." if own else ""
    return UnknownName("parameter", name, known=accepted, owner=preset, remedy=remedy)


def _slot_and_name(name: str) -> tuple[str, str]:
    slot, dot, rest = name.partition(".")
    if dot:
        if slot not in SLOTS:
            raise UnknownName("slot", slot, known=SLOTS, owner="the equation")
        return slot, rest
    slots = [slot for slot, (_, methods, *_) in SLOTS.items() if name in [each.name for each in methods]]
    if len(slots) > 1:
        raise UnknownName.because(
            "name", f"{name} is the name of several methods", known=[f"{slot}.{name}" for slot in slots]
        )
    if not slots:
        methods = [f"{slot}.{each.name}" for slot, (_, methods, *_) in SLOTS.items() for each in methods]
        known = [*PRESETS, *methods, INSTEAD]
        raise UnknownName("preset or method", name, known=get_close_matches(name, known) or known)
    return slots[0], name


def _spec(slot: str, term: Term) -> Spec:
    """The method, its nested methods taken from the same slot."""
    values: dict[str, Any] = {
        key: _spec(slot, value) if isinstance(value, Term) else value for key, value in term.values.items()
    }
    return build(method(slot, term.name.removeprefix(f"{slot}.")), values)
