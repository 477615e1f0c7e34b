"""Extension: one slot per factor of the equation. Whatever a paper proposes is one of these."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import Generator, Tensor

from ropewalk import stored
from ropewalk.biases import Bias
from ropewalk.decoding import Decoding
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.facts import MODEL, SINKS, Facts
from ropewalk.frequencies import Frequencies, RoPE
from ropewalk.pages import page_of
from ropewalk.positions import Positions, Sequential
from ropewalk.reach import Causal, Reach
from ropewalk.scales import Scale
from ropewalk.slots import INSTEAD, PER_LAYER, SLOTS, Slot
from ropewalk.spec import Json, Spec
from ropewalk.surgery import Surgery

MOST_POSITIONS = 2**62  # what an unbounded stretch makes of the trained length

Layers = tuple[tuple[int, "Extension"], ...]


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A method of length extrapolation. A slot left empty keeps what the model does.

    A model may come with a schedule of its own: a table of frequencies that its makers stretched. Frequencies given
    here map that table. With `instead` they take its place: all is as if the model had never been stretched.

    `layers` maps a layer (negative: counted from the last) to an extension of its own; a slot that it leaves empty
    keeps what the whole says.
    """

    frequencies: Frequencies | None = None
    reach: Reach | None = None
    biases: tuple[Bias, ...] = ()
    scales: tuple[Scale, ...] = ()
    positions: Positions | None = None
    decoding: Decoding | None = None
    surgery: tuple[Surgery, ...] = ()
    layers: Layers | Mapping[int, Extension] = ()
    instead: bool = False

    def __post_init__(self) -> None:
        for name, slot in SLOTS.items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), slot))
        object.__setattr__(self, "layers", _checked_layers(self.layers))
        if not isinstance(self.instead, bool):
            raise InvalidValue(INSTEAD, "true or false", self.instead)

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
        filled = {name: getattr(self, name) for name in SLOTS}
        return {name: value if isinstance(value, tuple) else (value,) for name, value in filled.items() if value}

    def ground(self, facts: Facts) -> Facts:
        """What this extension stands on: the model as it came, or as it was before its own schedule."""
        return facts.undone if self.instead else facts

    def at_layer(self, layer: int | None, facts: Facts) -> Extension:
        """The extension that is in force in one layer, without `layers`."""
        if layer is None and self.layers:
            raise InvalidValue("layer", "given, since this extension differs between layers", layer)
        own = self._own_layers(facts).get(-1 if layer is None else _layer_index(layer, facts))
        return self._overridden(own or Extension())

    def _overridden(self, own: Extension) -> Extension:
        stated = {name: value for name in PER_LAYER if (value := getattr(own, name))}
        return replace(self, **{**stated, "layers": ()})

    def _own_layers(self, facts: Facts) -> dict[int, Extension]:
        own = {_layer_index(key, facts): extension for key, extension in self.overrides}
        if len(own) < len(self.overrides):
            raise DoesNotFit("layers", f"each a different one of {facts.layers}", [key for key, _ in self.overrides])
        return own

    def check_against(self, facts: Facts) -> None:
        """Refuse a model that this extension cannot serve, before anything is computed or touched."""
        facts = self.ground(facts)
        for own in self._own_layers(facts).values():
            self._overridden(own).check_against(facts)
        self.theta.check_against(facts)
        familiar = replace(facts, trained_len=int(min(facts.trained_len * self.theta.stretch, MOST_POSITIONS)))
        for name, specs in self.specs.items():
            for spec in specs:
                spec.check_against(familiar if name == "reach" else facts)

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, dict[str, Tensor]]:
        """Initial values of what the biases and scales learn, by method name; who learns nothing is left out."""
        if self.layers:
            raise InvalidValue(
                "layers", "settled", [key for key, _ in self.overrides], remedy="take at_layer(...) first"
            )
        learners = (*self.biases, *self.scales)
        return {spec.name: initial for spec in learners if (initial := spec.weights(facts, generator))}

    def check_weights(self, weights: Mapping[str, Mapping[str, Tensor]], facts: Facts) -> None:
        """Refuse learned numbers that are missing, unknown or of the wrong shape, the model's own among them."""
        wanted = {name: _shapes(group) for name, group in self.weights(facts, Generator()).items()}
        if facts.sinks:
            wanted[MODEL] = {SINKS: (facts.heads,)}
        given = {name: _shapes(group) for name, group in weights.items()}
        if wanted != given:
            raise InvalidValue("weights", f"{wanted or 'empty'}", given, remedy="start from extension.weights(facts)")

    def __add__(self, other: Extension) -> Extension:
        """Both together. A slot that holds one thing may be filled once."""
        if not isinstance(other, Extension):
            return NotImplemented
        merged: dict[str, Any] = {}
        for name, slot in SLOTS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if slot.several:
                merged[name] = mine + tuple(spec for spec in theirs if spec not in mine)
            elif mine and theirs and mine != theirs:
                raise Conflict(name, "given once", f"{mine} and {theirs}", remedy="keep one of the two")
            else:
                merged[name] = mine or theirs
        layers = _merged_layers(dict(self.overrides), dict(other.overrides))
        return Extension(**merged, layers=layers, instead=self.instead or other.instead)

    def over(self, other: Extension) -> Extension:
        """What this says in the place of what the other says, slot by slot; where it says nothing, the other holds.

        Frequencies take the place of the other's with their temperature, and `instead` takes both away.
        """
        if self.frequencies is not None or self.instead:
            scales = tuple(spec for spec in other.scales if not spec.of_frequencies)
            other = replace(other, scales=scales, frequencies=None if self.instead else other.frequencies)
        merged: dict[str, Any] = {}
        for name, slot in SLOTS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if slot.several:
                restated = {spec.name for spec in mine}
                merged[name] = tuple(spec for spec in theirs if spec.name not in restated) + mine
            else:
                merged[name] = mine or theirs
        layers = dict(other.overrides)
        for key, own in self.overrides:
            layers[key] = own.over(layers.get(key, Extension()))
        return Extension(**merged, layers=layers, instead=self.instead or other.instead)

    def to_json(self) -> Json:
        """Every filled slot, each method with all its parameters, so that it survives a change of defaults."""
        values: Json = {}
        for name, specs in self.specs.items():
            values[name] = [spec.to_json() for spec in specs] if SLOTS[name].several else specs[0].to_json()
        if self.layers:
            values["layers"] = {str(key): own.to_json() for key, own in self.overrides}
        return {**values, INSTEAD: True} if self.instead else values

    @classmethod
    def from_json(cls, values: str | Mapping[str, Any]) -> Extension:
        """What `to_json` gave, as a dict or as text. Unknown keys are errors."""
        read = stored.load(values)
        filled = {name: stored.content(name, value) for name, value in read.items() if name in SLOTS}
        layers = [(key, cls.from_json(own)) for key, own in stored.layers(read.get("layers", {}))]
        return cls(**filled, layers=tuple(layers), instead=read.get(INSTEAD, False))

    def describe(self) -> str:
        """The formula that results, and what each of its parts is."""
        scale = "".join(f"{spec.name}(i) * " for spec in self.scales)
        bias = "".join(f" + {spec.name}_h(q_at(i) - k_at(j))" for spec in self.biases)
        lines = [f"logit(i,j) = {scale}< R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d){bias}", ""]
        shown = {"frequencies": (self.theta,), "reach": (self.spans,), **self.specs}
        for name, specs in shown.items():
            for spec in specs:
                page = page_of(spec)
                lines += [f"{name}.{spec}", *_indented(f"{page.idea}\n{page.formula}\nSource: {page.source}"), ""]
        if self.instead:
            lines += ["instead: replaces the checkpoint's own schedule, if it came with one", ""]
        for key, own in self.overrides:
            lines += [f"in layer {key}:", *_indented(self._overridden(own).describe()), ""]
        return "\n".join(lines).rstrip()


def _indented(text: str) -> list[str]:
    return textwrap.indent(text, "    ").splitlines()


def _shapes(group: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in group.items()}


def _checked(name: str, value: Any, slot: Slot) -> Any:
    """The slot's content in its type, or a refusal."""
    if not slot.several:
        if value is not None and not isinstance(value, slot.family):
            raise InvalidValue(name, f"a {slot.family.__name__}", value)
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(spec, slot.family) for spec in value):
        raise InvalidValue(name, f"a tuple of {slot.family.__name__}", value)
    names = [spec.name for spec in value]
    if len(set(names)) < len(names):
        raise Conflict(name, "different methods", names, remedy="name each once")
    return tuple(value)


def _checked_layers(layers: Any) -> Layers:
    pairs = tuple(layers.items()) if isinstance(layers, Mapping) else layers
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidValue("layers", "a mapping from layers to extensions", layers)
    for key, extension in pairs:
        _check_layer(key, extension)
    if len({key for key, _ in pairs}) < len(pairs):
        raise Conflict("layers", "given once each", [key for key, _ in pairs])
    return tuple(sorted(pairs, key=lambda pair: int(pair[0])))


def _check_layer(key: Any, extension: Any) -> None:
    if isinstance(key, bool) or not isinstance(key, int):
        raise InvalidValue("layers", "keyed by whole numbers", key)
    if not isinstance(extension, Extension):
        raise InvalidValue(f"layers[{key}]", "an Extension", extension)
    outside = [name for name in extension.specs if name not in PER_LAYER]
    outside += ["layers"] * bool(extension.layers) + [INSTEAD] * extension.instead
    if outside:
        remedy = "set instead on the whole extension" if outside[0] == INSTEAD else ""
        raise InvalidValue(f"layers[{key}]", f"made of {', '.join(PER_LAYER)}", outside[0], remedy=remedy)


def _layer_index(key: int, facts: Facts) -> int:
    if isinstance(key, bool) or not isinstance(key, int) or not -facts.layers <= key < facts.layers:
        raise DoesNotFit("layer", f"one of the model's {facts.layers}, from {-facts.layers} to {facts.layers - 1}", key)
    return key % facts.layers


def _merged_layers(mine: dict[int, Extension], theirs: dict[int, Extension]) -> dict[int, Extension]:
    both = [key for key in mine if key in theirs and mine[key] != theirs[key]]
    if both:
        raise Conflict("layers", "given once each", both, remedy="keep one extension per layer")
    return {**mine, **theirs}
