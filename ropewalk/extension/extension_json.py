"""Read an extension from JSON: unknown and repeated keys are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ropewalk.errors import UnknownName, Unreadable
from ropewalk.extension.notation import DEEPEST, INSTEAD
from ropewalk.extension.slots import SLOTS, method
from ropewalk.files import read_json
from ropewalk.methods.spec import Spec, build

LAYER = r"-?(0|[1-9][0-9]{0,8})"
LONGEST_JSON = 4_000_000  # characters: divisors of 288 pairs, long and short, in 128 layers are 1,500,000


def load(values: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The object in a JSON text, or the object itself."""
    if isinstance(values, str) and len(values) > LONGEST_JSON:
        raise Unreadable("extension", f"JSON of at most {LONGEST_JSON:,} characters", len(values))
    read = read_json(values, "extension") if isinstance(values, str) else values
    if not isinstance(read, Mapping):
        raise Unreadable("extension", "a JSON object of slots", read)
    for name in read:
        if name not in (*SLOTS, "layers", INSTEAD):
            raise UnknownName("slot", name, known=[*SLOTS, "layers", INSTEAD], owner="the equation")
    return read


def content(name: str, value: Any) -> Any:
    """The method, or methods, in the JSON of a slot."""
    if not SLOTS[name].several:
        return _spec(name, value)
    if not isinstance(value, list | tuple):
        raise Unreadable(name, "a JSON list", value)
    return [_spec(name, item) for item in value]


def layers(value: Any) -> list[tuple[int, Any]]:
    """Layer numbers with the JSON of their extensions."""
    if not isinstance(value, Mapping):
        raise Unreadable("layers", "a JSON object", value)
    for key, content in value.items():
        if isinstance(key, bool) or not re.fullmatch(LAYER, str(key)):
            raise Unreadable("layers", "keyed by whole numbers", key)
        if not isinstance(content, Mapping) or "layers" in content:
            raise Unreadable(f"layers[{key}]", "a JSON object of slots, without layers", content)
    return [(int(key), content) for key, content in value.items()]


def _spec(name: str, values: Any, depth: int = 1) -> Spec:
    if not isinstance(values, Mapping) or "name" not in values:
        raise Unreadable(name, "a JSON object with a name", values)
    if depth > DEEPEST:
        raise Unreadable(name, f"nested at most {DEEPEST} deep", values)
    arguments = {
        key: _spec(name, value, depth + 1) if isinstance(value, Mapping) else value for key, value in values.items()
    }
    return build(method(name, values["name"]), {key: value for key, value in arguments.items() if key != "name"})
