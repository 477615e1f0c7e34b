"""The slots of an extension: one per factor of the equation, with the methods that may fill it; read from JSON.

Unknown and repeated keys of the JSON are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.extension.notation import DEEPEST, INSTEAD, names_file
from ropewalk.extension.outside import method_on_line, offered, require_unclashed, stored_method
from ropewalk.files import read_json
from ropewalk.methods import biases, decoding, frequencies, positions, reach, scales, surgery
from ropewalk.methods.biases import Bias
from ropewalk.methods.decoding import Decoding
from ropewalk.methods.frequencies import Frequencies
from ropewalk.methods.positions import Positions
from ropewalk.methods.reach import Reach
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import OF_ORIGIN, Spec, build
from ropewalk.methods.surgery import Surgery

LAYER = r"-?(0|[1-9][0-9]{0,8})"
LONGEST_JSON = 4_000_000  # characters: divisors of 288 pairs, long and short, in 128 layers are 1,500,000


class Slot(NamedTuple):
    """The methods that may fill one factor of the equation."""

    family: type[Spec]  # the factor's signature
    methods: tuple[type[Spec], ...]
    several: bool  # biases add up and scales multiply; other slots hold one method
    per_layer: bool  # whether layers may differ in it
    per_head: bool = False  # whether the key heads of a layer may


SLOTS = {
    "frequencies": Slot(Frequencies, frequencies.ALL, several=False, per_layer=True, per_head=True),
    "reach": Slot(Reach, reach.ALL, several=False, per_layer=True, per_head=True),
    "biases": Slot(Bias, biases.ALL, several=True, per_layer=True),
    "scales": Slot(Scale, scales.ALL, several=True, per_layer=True),
    "positions": Slot(Positions, positions.ALL, several=False, per_layer=False),
    "decoding": Slot(Decoding, decoding.ALL, several=False, per_layer=False),
    "surgery": Slot(Surgery, surgery.ALL, several=True, per_layer=False),
}
PER_LAYER = tuple(name for name, slot in SLOTS.items() if slot.per_layer)
PER_HEAD = tuple(name for name, slot in SLOTS.items() if slot.per_head)
OVERRIDES = ("layers", "heads")  # where an extension differs from layer to layer, and within a layer


def method(slot: str, name: str) -> type[Spec]:
    """The method of that name in that slot: one of ours, of an installed package, or of a file whose path it is."""
    methods = SLOTS[slot].methods
    for spec in methods:
        if spec.name == name:
            require_unclashed(name)
            return spec
    kind = method_on_line(name) if names_file(name) else offered(name)
    if kind is None:
        raise UnknownName("method", name, known=[method.name for method in methods], owner=slot)
    return _require_slot(kind, slot)


def slot_of(kind: type[Spec]) -> str:
    """The slot that a method fills, by the signature that it extends."""
    return next(name for name, slot in SLOTS.items() if issubclass(kind, slot.family))


def _require_slot(kind: type[Spec], slot: str) -> type[Spec]:
    if slot_of(kind) != slot:
        sentence = f"{kind.name} fills {slot_of(kind)}, and not {slot}"
        raise InvalidValue.because(slot, sentence, remedy=f"write {slot_of(kind)}.{kind.name}")
    return kind


def read_object(values: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The object in a JSON text, or the object itself."""
    if isinstance(values, str) and len(values) > LONGEST_JSON:
        raise Unreadable("extension", f"JSON of at most {LONGEST_JSON:,} characters", len(values))
    read = read_json(values, "extension") if isinstance(values, str) else values
    if not isinstance(read, Mapping):
        raise Unreadable("extension", "a JSON object of slots", read)
    for name in read:
        if name not in (*SLOTS, *OVERRIDES, INSTEAD):
            raise UnknownName("slot", name, known=[*SLOTS, *OVERRIDES, INSTEAD], owner="the equation")
    return read


def read_slot(name: str, value: Any) -> Any:
    """The method, or methods, in the JSON of a slot."""
    if not SLOTS[name].several:
        return _spec(name, value)
    if not isinstance(value, list | tuple):
        raise Unreadable(name, "a JSON list", value)
    return [_spec(name, item) for item in value]


def read_overrides(kind: str, value: Any) -> list[tuple[int, Any]]:
    """Numbers of layers, or of key heads, with the JSON of their extensions."""
    if not isinstance(value, Mapping):
        raise Unreadable(kind, "a JSON object", value)
    without = OVERRIDES[: OVERRIDES.index(kind) + 1]
    for key, content in value.items():
        if isinstance(key, bool) or not re.fullmatch(LAYER, str(key)):
            raise Unreadable(kind, "keyed by whole numbers", key)
        if not isinstance(content, Mapping) or any(name in content for name in without):
            raise Unreadable(f"{kind}[{key}]", f"a JSON object of slots, without {' or '.join(without)}", content)
    return [(int(key), content) for key, content in value.items()]


def _spec(name: str, values: Any, depth: int = 1) -> Spec:
    if not isinstance(values, Mapping) or "name" not in values:
        raise Unreadable(name, "a JSON object with a name", values)
    if depth > DEEPEST:
        raise Unreadable(name, f"nested at most {DEEPEST} deep", values)
    arguments = {
        key: _spec(name, value, depth + 1) if isinstance(value, Mapping) else value for key, value in values.items()
    }
    known = any(key in values for key in OF_ORIGIN)
    kind = _require_slot(stored_method(values), name) if known else _stored_by_name(name, values["name"])
    return build(kind, {key: value for key, value in arguments.items() if key not in ("name", *OF_ORIGIN)})


def _stored_by_name(slot: str, name: Any) -> type[Spec]:
    """The method of a name alone. JSON names a file by a key, and no path is one."""
    if not isinstance(name, str) or names_file(name):
        raise UnknownName("method", name, known=[method.name for method in SLOTS[slot].methods], owner=slot)
    return method(slot, name)
