"""Reading an extension from JSON: nothing unknown is accepted, nothing said twice."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ropewalk.errors import UnknownName, Unreadable
from ropewalk.slots import INSTEAD, SLOTS, method
from ropewalk.spec import Json, Spec, build


def load(values: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that a text stands for, or the object itself."""
    read = _parse(values) if isinstance(values, str) else values
    if not isinstance(read, Mapping):
        raise Unreadable("extension", "a JSON object of slots", read)
    for name in read:
        if name not in (*SLOTS, "layers", INSTEAD):
            raise UnknownName("slot", "one of the equation's", name, known=[*SLOTS, "layers", INSTEAD])
    return read


def _parse(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except (json.JSONDecodeError, RecursionError) as error:
        raise Unreadable("extension", "JSON", text[:80], remedy=str(error)) from error


def _each_once(pairs: list[tuple[str, Any]]) -> Json:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise Unreadable("extension", "JSON that names each key once", [key for key, _ in pairs])
    return values


def content(name: str, value: Any) -> Any:
    """What a slot's JSON stands for: a spec, or several."""
    if not SLOTS[name].several:
        return _spec(name, value)
    if not isinstance(value, list | tuple):
        raise Unreadable(name, "a JSON list", value)
    return [_spec(name, item) for item in value]


def layers(value: Any) -> list[tuple[int, Any]]:
    """Layers and the JSON of their extensions."""
    if not isinstance(value, Mapping):
        raise Unreadable("layers", "a JSON object", value)
    for key in value:
        if not re.fullmatch(r"-?\d+", str(key)):
            raise Unreadable("layers", "keyed by whole numbers", key)
    return [(int(key), own) for key, own in value.items()]


def _spec(name: str, values: Any) -> Spec:
    if not isinstance(values, Mapping) or "name" not in values:
        raise Unreadable(name, "a JSON object with a name", values)
    given = {key: _spec(name, value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return build(method(name, values["name"]), {key: value for key, value in given.items() if key != "name"})
