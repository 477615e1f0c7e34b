"""Extension: one slot per factor of the equation. Whatever a paper proposes is one of these."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import Generator, Tensor

from ropewalk import biases, decoding, frequencies, positions, reach, scales, surgery
from ropewalk.biases import Bias
from ropewalk.decoding import Decoding
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, UnknownName, Unreadable
from ropewalk.facts import Facts
from ropewalk.frequencies import Frequencies, RoPE
from ropewalk.pages import page_of
from ropewalk.positions import Positions, Sequential
from ropewalk.reach import Causal, Reach
from ropewalk.scales import Scale
from ropewalk.spec import Json, Spec, build
from ropewalk.surgery import Surgery

# slot -> (its base class, its methods, whether several may be given)
SLOTS: dict[str, tuple[type[Spec], tuple[type[Spec], ...], bool]] = {
    "frequencies": (Frequencies, frequencies.ALL, False),
    "reach": (Reach, reach.ALL, False),
    "biases": (Bias, biases.ALL, True),
    "scales": (Scale, scales.ALL, True),
    "positions": (Positions, positions.ALL, False),
    "decoding": (Decoding, decoding.ALL, False),
    "surgery": (Surgery, surgery.ALL, True),
}
PER_LAYER = ("frequencies", "reach", "biases", "scales")  # what may differ between layers

MOST_POSITIONS = 2**62  # what an unbounded stretch makes of the trained length

Layers = tuple[tuple[int, "Extension"], ...]


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A method of length extrapolation. A slot left empty keeps what the model does.

    `layers` maps a layer (negative: counted from the last) to the extension that this layer has instead.
    """

    frequencies: Frequencies | None = None
    reach: Reach | None = None
    biases: tuple[Bias, ...] = ()
    scales: tuple[Scale, ...] = ()
    positions: Positions | None = None
    decoding: Decoding | None = None
    surgery: tuple[Surgery, ...] = ()
    layers: Layers | Mapping[int, Extension] = ()

    def __post_init__(self) -> None:
        for slot, (family, _, several) in SLOTS.items():
            object.__setattr__(self, slot, _checked(slot, getattr(self, slot), family, several))
        object.__setattr__(self, "layers", _checked_layers(self.layers))

    # The equation's view: what is in force where a slot is empty.

    @property
    def theta(self) -> Frequencies:
        return self.frequencies or RoPE()

    @property
    def spans(self) -> Reach:
        return self.reach or Causal()

    @property
    def numbering(self) -> Positions:
        return self.positions or Sequential()

    @property
    def overrides(self) -> Layers:
        """`layers` as it is kept: pairs of a layer and its extension, in order."""
        return cast(Layers, self.layers)

    @property
    def specs(self) -> dict[str, tuple[Spec, ...]]:
        """What fills each filled slot, layers apart."""
        filled = {slot: getattr(self, slot) for slot in SLOTS}
        return {slot: value if isinstance(value, tuple) else (value,) for slot, value in filled.items() if value}

    def at_layer(self, layer: int | None, facts: Facts) -> Extension:
        """The extension that one layer has, without `layers`."""
        if not self.layers:
            return self
        if layer is None:
            raise InvalidValue("layer", "given, since this extension differs between layers", layer)
        own = self._own_layers(facts).get(_layer_index(layer, facts))
        return replace(self, layers=()) if own is None else replace(own, positions=self.positions)

    def check_against(self, facts: Facts) -> None:
        """Refuse a model that this extension cannot serve, before anything is computed or touched."""
        for own in self._own_layers(facts).values():
            own.check_against(facts)
        self.theta.check_against(facts)
        familiar = replace(facts, trained_len=int(min(facts.trained_len * self.theta.stretch, MOST_POSITIONS)))
        for slot, specs in self.specs.items():
            for spec in specs:
                spec.check_against(familiar if slot == "reach" else facts)

    def _own_layers(self, facts: Facts) -> dict[int, Extension]:
        own = {_layer_index(key, facts): extension for key, extension in self.overrides}
        if len(own) < len(self.overrides):
            raise DoesNotFit("layers", f"each a different one of {facts.layers}", [key for key, _ in self.overrides])
        return own

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, dict[str, Tensor]]:
        """Initial values of what the biases and scales learn, by method name; who learns nothing is left out."""
        learners = (*self.biases, *self.scales)
        return {spec.name: initial for spec in learners if (initial := spec.weights(facts, generator))}

    def __add__(self, other: Extension) -> Extension:
        """Both together. A slot that holds one thing may be filled once."""
        merged: dict[str, Any] = {}
        for slot, (_, _, several) in SLOTS.items():
            mine, theirs = getattr(self, slot), getattr(other, slot)
            if not several and mine and theirs and mine != theirs:
                raise Conflict(slot, "given once", f"{mine} and {theirs}", remedy="keep one of the two")
            merged[slot] = mine + theirs if several else mine or theirs
        return Extension(**merged, layers=_merged_layers(dict(self.overrides), dict(other.overrides)))

    def to_json(self) -> Json:
        """Every filled slot, each method with all its parameters."""
        values: Json = {}
        for slot, specs in self.specs.items():
            several = SLOTS[slot][2]
            values[slot] = [spec.to_json() for spec in specs] if several else specs[0].to_json()
        if self.layers:
            values["layers"] = {str(key): extension.to_json() for key, extension in self.overrides}
        return values

    @classmethod
    def from_json(cls, values: str | Mapping[str, Any]) -> Extension:
        """What `to_json` gave, as a dict or as text. Unknown keys are errors."""
        read = _load(values) if isinstance(values, str) else values
        if not isinstance(read, Mapping):
            raise Unreadable("extension", "a JSON object of slots", read)
        given = {slot: _slot_from_json(slot, value) for slot, value in read.items()}
        return cls(**given)

    def describe(self) -> str:
        """The formula that results, and where each of its parts comes from."""
        scale = "".join(f"{spec.name}(i) * " for spec in self.scales)
        bias = "".join(f" + {spec.name}_h(i-j)" for spec in self.biases)
        lines = [f"logit(i,j) = {scale}< R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d){bias}", ""]
        shown = {"frequencies": (self.theta,), "reach": (self.spans,), **self.specs}
        for slot, specs in shown.items():
            for spec in specs:
                lines += [f"{slot}: {spec}", *_paragraph(page_of(spec).idea), *_paragraph(page_of(spec).formula), ""]
        for key, extension in self.overrides:
            lines += [f"layer {key} instead:", *_paragraph(extension.describe()), ""]
        return "\n".join(lines).rstrip()


def method(slot: str, name: str) -> type[Spec]:
    """The method of that name in that slot."""
    for each in SLOTS[slot][1]:
        if each.name == name:
            return each
    raise UnknownName(f"{slot} method", "one that exists", name, known=[each.name for each in SLOTS[slot][1]])


def _paragraph(text: str) -> list[str]:
    return textwrap.indent(text, "    ").splitlines()


def _checked(slot: str, value: Any, family: type[Spec], several: bool) -> Any:
    """The slot's content in its type, or a refusal."""
    if not several:
        if value is not None and not isinstance(value, family):
            raise InvalidValue(slot, f"a {family.__name__}", value)
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(spec, family) for spec in value):
        raise InvalidValue(slot, f"a tuple of {family.__name__}", value)
    names = [spec.name for spec in value]
    if len(set(names)) < len(names):
        raise Conflict(slot, "different methods", names, remedy="name each once")
    return tuple(value)


def _checked_layers(layers: Any) -> Layers:
    if not isinstance(layers, Mapping | tuple):
        raise InvalidValue("layers", "a mapping from layers to extensions", layers)
    pairs = tuple(layers.items()) if isinstance(layers, Mapping) else layers
    for key, extension in pairs:
        if isinstance(key, bool) or not isinstance(key, int):
            raise InvalidValue("layers", "keyed by whole numbers", key)
        if not isinstance(extension, Extension):
            raise InvalidValue(f"layers[{key}]", "an Extension", extension)
        outside = [slot for slot in extension.specs if slot not in PER_LAYER] + ["layers"] * bool(extension.layers)
        if outside:
            raise InvalidValue(f"layers[{key}]", f"made of {', '.join(PER_LAYER)}", outside[0])
    return tuple(sorted(pairs))


def _layer_index(key: int, facts: Facts) -> int:
    if not -facts.layers <= key < facts.layers:
        raise DoesNotFit("layer", f"one of the model's {facts.layers}, from {-facts.layers} to {facts.layers - 1}", key)
    return key % facts.layers


def _merged_layers(mine: dict[int, Extension], theirs: dict[int, Extension]) -> dict[int, Extension]:
    both = [key for key in mine if key in theirs and mine[key] != theirs[key]]
    if both:
        raise Conflict("layers", "given once each", both, remedy="keep one extension per layer")
    return {**mine, **theirs}


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable("extension", "JSON", text, remedy=str(error)) from error


def _slot_from_json(slot: str, value: Any) -> Any:
    if slot == "layers":
        if not isinstance(value, Mapping):
            raise Unreadable("layers", "a JSON object", value)
        return {_layer_key(key): Extension.from_json(extension) for key, extension in value.items()}
    if slot not in SLOTS:
        raise UnknownName("slot", "one of the equation's", slot, known=[*SLOTS, "layers"])
    if not SLOTS[slot][2]:
        return _spec_from_json(slot, value)
    if not isinstance(value, list | tuple):
        raise Unreadable(slot, "a JSON list", value)
    return [_spec_from_json(slot, item) for item in value]


def _layer_key(key: str) -> int:
    try:
        return int(key)
    except ValueError:
        raise Unreadable("layers", "keyed by whole numbers", key) from None


def _spec_from_json(slot: str, values: Any) -> Spec:
    if not isinstance(values, Mapping) or "name" not in values:
        raise Unreadable(slot, "a JSON object with a name", values)
    given = {key: value for key, value in values.items() if key != "name"}
    nested = {key: _spec_from_json(slot, value) for key, value in given.items() if isinstance(value, Mapping)}
    return build(method(slot, values["name"]), {**given, **nested})
