"""Everything on the page that is a list, read from the sources: slots, methods, parameters, presets."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin

from ropewalk.errors import RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import PRESETS, parse_for
from ropewalk.extension.presets.needs import needs
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import Parameter, arguments, parameters
from ropewalk.methods.spec import Json, Spec

USUAL = Facts(trained_len=4096, head_dim=128, heads=32, layers=32)  # a Llama, for the compositions that are shown
TIMES = 8  # its target, in trained lengths


def catalogue() -> Json:
    """Slots with their methods, and presets, for JSON.

    catalogue()["presets"][1]["line"]   # "interpolation:factor=8"
    """
    return {
        "slots": {
            name: {"several": slot.several, "methods": [_method(method) for method in slot.methods]}
            for name, slot in SLOTS.items()
        },
        "presets": [_preset(name, preset) for name, preset in PRESETS.items()],
    }


def _method(method: type[Spec]) -> Json:
    page = page_of(method)
    return {
        "name": method.name,
        "idea": page.idea,
        "formula": page.formula,
        "source": page.source,
        "parameters": [_parameter(parameter) for parameter in parameters(method)],
    }


def _parameter(parameter: Parameter) -> Json:
    """A field; one without a default is required. What it does not have is left out."""
    required = parameter.default is dataclasses.MISSING
    return {
        "name": parameter.name,
        "kind": parameter.kind,
        **({"rule": parameter.rule.text} if parameter.rule else {}),
        "type": _type(parameter.type),
        **({"required": True} if required else {"default": parameter.default}),
    }


def _type(hint: Any) -> Json:
    """A type as the page's scripts read it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"choices": list(arguments)}
    if origin in (types.UnionType, Union):
        return {"any": [_type(argument) for argument in arguments]}
    if origin is tuple:
        return {"list": _type(arguments[0])}
    if isinstance(hint, type) and issubclass(hint, Spec):
        return {"method": next(name for name, slot in SLOTS.items() if slot.family is hint)}
    return {"name": "nothing" if hint is type(None) else hint.__name__}


def _preset(name: str, preset: Callable[..., Extension]) -> Json:
    page = page_of(preset)
    return {
        "name": name,
        "idea": page.idea,
        "source": page.source,
        "needs": needs(name),
        "line": _composition(name),
        "parameters": [_parameter(argument) for argument in arguments(preset).values()],
    }


def _composition(name: str) -> str:
    """What a preset consists of on a usual model; empty where it does not fit that."""
    try:
        extension = parse_for(name, USUAL, TIMES * USUAL.trained_len)
    except RopewalkError:
        return ""
    return "+".join(str(spec) for specs in extension.specs.values() for spec in specs)
