"""Extension: one slot per factor of the equation. Every published method is one of these."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Generator, Tensor

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.extension.notation import INSTEAD
from ropewalk.extension.outside import recognise
from ropewalk.extension.slots import PER_LAYER, SLOTS, Slot, read_layers, read_object, read_slot
from ropewalk.methods.biases import Bias
from ropewalk.methods.decoding import Decoding
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.facts import AFTER_ROTATION, MODEL, SINKS, Facts
from ropewalk.methods.frequencies import Frequencies, RoPE
from ropewalk.methods.frequencies.frequencies import rewrap, unwrap, wrap
from ropewalk.methods.positions import Positions, Sequential
from ropewalk.methods.reach import Causal, Reach, furthest
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import Json, Spec, with_inner
from ropewalk.methods.surgery import Surgery

WORDS = {"frequencies": "schedules", "reach": "reaches", "positions": "numberings", "decoding": "decoding methods"}
LONG_FACTOR = 8  # trained lengths: a text in which reaches show what they do
MOST_POSITIONS = 2**62  # what a position can be, under an unbounded stretch or of an absurd trained length

Layers = tuple[tuple[int, "Extension"], ...]


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One or several methods of length extrapolation, one slot per factor. An empty slot keeps the model's behaviour.

        from ropewalk.methods.frequencies import ByParts
        from ropewalk.methods.scales import LogN

        rw.Extension(frequencies=ByParts(factor=4), scales=(LogN(),)) == rw.parse("by_parts:factor=4+log_n")

    A checkpoint may come with its own schedule: a stretched table of frequencies. `frequencies` map that table. With
    `replaces_scaling` (`+instead` in notation) they replace it, as if the model had never been stretched.

    `layers` maps a layer (negative: from the last) to the extension of that layer; its empty slots keep those of the
    whole.
    """

    frequencies: Frequencies | None = None
    reach: Reach | None = None
    biases: tuple[Bias, ...] = ()
    scales: tuple[Scale, ...] = ()
    positions: Positions | None = None
    decoding: Decoding | None = None
    surgery: tuple[Surgery, ...] = ()
    layers: Layers | Mapping[int, Extension] = ()
    replaces_scaling: bool = False

    def __post_init__(self) -> None:
        for name, slot in SLOTS.items():
            object.__setattr__(self, name, _check_slot(name, getattr(self, name), slot))
            for spec in getattr(self, name) if slot.several else filter(None, [getattr(self, name)]):
                recognise(type(spec))
        object.__setattr__(self, "layers", _check_layers(self.layers))
        if not isinstance(self.replaces_scaling, bool):
            raise InvalidValue(INSTEAD, "true or false", self.replaces_scaling)

    # What is in force where a slot is empty.

    @property
    def frequencies_or_rope(self) -> Frequencies:
        return self.frequencies or RoPE()

    @property
    def reach_or_causal(self) -> Reach:
        return self.reach or Causal()

    @property
    def positions_or_sequential(self) -> Positions:
        return self.positions or Sequential()

    @property
    def layer_items(self) -> Layers:
        """`layers` as stored: pairs of a layer and its extension, in order."""
        return cast(Layers, self.layers)

    @property
    def specs(self) -> dict[str, tuple[Spec, ...]]:
        """The methods in every filled slot, without those of `layers`."""
        filled = {name: getattr(self, name) for name in SLOTS}
        return {name: value if isinstance(value, tuple) else (value,) for name, value in filled.items() if value}

    @property
    def methods(self) -> tuple[Spec, ...]:
        """All methods, those inside others and those of single layers included, without repeats."""
        whole = [self, *(override for _, override in self.layer_items)]
        specs = [spec for one in whole for group in one.specs.values() for spec in group]
        return tuple(dict.fromkeys(part for spec in specs for part in with_inner(spec)))

    def builds_on(self, facts: Facts) -> Facts:
        """The facts that this extension starts from: the checkpoint's, or those before the scaling that it replaces."""
        return facts.unscaled if self.replaces_scaling else facts

    def turns(self, facts: Facts) -> Tensor:
        """How often each pair turns within the trained length, under the table of the first row."""
        return self.frequencies_or_rope.table(facts, 1).inv_freq * facts.trained_len / (2 * math.pi)

    def at_layer(self, layer: int | None, facts: Facts) -> Extension:
        """The extension that is in force in one layer, without `layers`."""
        if layer is None and self.layers:
            raise InvalidValue.because(
                "layer", "this extension differs between layers", remedy="take that of one by at_layer(...)"
            )
        override = self._by_layer(facts).get(-1 if layer is None else _layer_index(layer, facts))
        return self._overridden(override or Extension())

    def _overridden(self, override: Extension) -> Extension:
        stated = {name: value for name in PER_LAYER if (value := getattr(override, name))}
        if override.frequencies is not None:
            stated["frequencies"] = rewrap(override.frequencies, self.frequencies)
        return replace(self, **{**stated, "layers": ()})

    def _by_layer(self, facts: Facts) -> dict[int, Extension]:
        by_layer = {_layer_index(key, facts): extension for key, extension in self.layer_items}
        if len(by_layer) < len(self.layer_items):
            keys = [key for key, _ in self.layer_items]
            raise DoesNotFit("layers", f"different layers of a model with {facts.layers} layers", keys)
        return by_layer

    def check_against(self, facts: Facts) -> None:
        """Refuse a model that this extension does not fit, before anything is computed or changed."""
        facts = self.builds_on(facts)
        for override in self._by_layer(facts).values():
            self._overridden(override).check_against(facts)
        self.frequencies_or_rope.check_against(facts)
        familiar = replace(
            facts, trained_len=int(min(facts.trained_len * self.frequencies_or_rope.stretch, MOST_POSITIONS))
        )
        for name, specs in self.specs.items():
            for spec in specs:
                spec.check_against(familiar if name == "reach" else facts)
        if self.biases:
            row = torch.tensor([min(LONG_FACTOR * facts.trained_len, MOST_POSITIONS)])
            for bias in self.biases:
                bias.check_reached(
                    furthest(self.reach_or_causal, int(row)), _sees_all(self.reach_or_causal, row), facts
                )

    def weights(self, facts: Facts, generator: Generator | None = None) -> dict[str, dict[str, Tensor]]:
        """Initial values of the parameters of biases and scales, by method name, for methods that learn."""
        if self.layers:
            raise InvalidValue.because("layers", "weights belong to one layer", remedy="use extension.at_layer(...)")
        learners = (*self.biases, *self.scales)
        return {spec.name: initial for spec in learners if (initial := spec.weights(facts, generator))}

    def check_weights(self, weights: Mapping[str, Mapping[str, Tensor]], facts: Facts) -> None:
        """Refuse learned numbers that are missing, unknown or of the wrong shape, the model's own among them."""
        expected = {name: _shapes(group) for name, group in self.weights(facts, Generator()).items()}
        of_model: dict[str, tuple[int, ...]] = {SINKS: (facts.heads,)} if facts.sinks else {}
        of_model |= {AFTER_ROTATION: (facts.head_dim,)} if facts.weighted else {}
        expected |= {MODEL: of_model} if of_model else {}
        shapes = {name: _shapes(group) for name, group in weights.items()}
        if expected != shapes:
            raise InvalidValue(
                "weights", f"{expected or 'empty'}", shapes, remedy="start from extension.weights(facts)"
            )

    def __add__(self, other: Extension) -> Extension:
        """Both together. A slot for one method may be filled once; a wrapper goes around the other's schedule."""
        if not isinstance(other, Extension):
            return NotImplemented
        merged: dict[str, Any] = {}
        for name, slot in SLOTS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if slot.several:
                merged[name] = mine + tuple(spec for spec in theirs if spec not in mine)
            elif name == "frequencies":
                merged[name] = _combine_schedules(mine, theirs)
            else:
                merged[name] = _one_of(name, mine, theirs)
        layers = _merge_layers(dict(self.layer_items), dict(other.layer_items))
        return Extension(**merged, layers=layers, replaces_scaling=self.replaces_scaling or other.replaces_scaling)

    def over(self, other: Extension) -> Extension:
        """This extension over another: its filled slots replace the other's, its empty slots keep them.

        Frequencies replace the other's together with their temperature; `replaces_scaling` removes both. A wrapper that
        is open goes around the other's schedule.
        """
        core = unwrap(self.frequencies).core
        if core is not None or self.replaces_scaling:
            scales = tuple(spec for spec in other.scales if not spec.of_frequencies)
            other = replace(other, scales=scales, frequencies=None if self.replaces_scaling else other.frequencies)
        merged: dict[str, Any] = {}
        for name, slot in SLOTS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if slot.several:
                restated = {spec.name for spec in mine}
                merged[name] = tuple(spec for spec in theirs if spec.name not in restated) + mine
            elif name == "frequencies":
                merged[name] = theirs if mine is None else rewrap(mine, theirs)
            else:
                merged[name] = mine or theirs
        layers = dict(other.layer_items)
        for key, override in self.layer_items:
            layers[key] = override.over(layers.get(key, Extension()))
        return Extension(**merged, layers=layers, replaces_scaling=self.replaces_scaling or other.replaces_scaling)

    def to_json(self) -> Json:
        """Every filled slot, every method with all its parameters, so that it survives a change of defaults."""
        values: Json = {}
        for name, specs in self.specs.items():
            values[name] = [spec.to_json() for spec in specs] if SLOTS[name].several else specs[0].to_json()
        if self.layers:
            values["layers"] = {str(key): override.to_json() for key, override in self.layer_items}
        return {**values, INSTEAD: True} if self.replaces_scaling else values

    @classmethod
    def from_json(cls, values: str | Mapping[str, Any]) -> Extension:
        """The inverse of `to_json`, from a dict or a JSON text. Unknown keys are errors."""
        read = read_object(values)
        filled = {name: read_slot(name, value) for name, value in read.items() if name in SLOTS}
        layers = [(key, cls.from_json(content)) for key, content in read_layers(read.get("layers", {}))]
        return cls(**filled, layers=tuple(layers), replaces_scaling=read.get(INSTEAD, False))

    def describe(self) -> str:
        """The resulting formula, and every part of it."""
        scale = "".join(f"{spec.name}(i) * " for spec in self.scales if not spec.of_rotation)
        warmth = "".join(f"{spec.name}(i) * " for spec in self.scales if spec.of_rotation)
        bias = "".join(f" + {spec.name}_h(q_at(i) - k_at(j))" for spec in self.biases)
        lines = [f"logit(i,j) = {scale}< {warmth}R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d){bias}"]
        if warmth:
            lines.append(f"{warmth.removesuffix(' * ')} multiplies the dimensions that rotate, as transformers does")
        lines.append("")
        shown = {"frequencies": (self.frequencies_or_rope,), "reach": (self.reach_or_causal,), **self.specs}
        for name, specs in shown.items():
            for part in (part for spec in specs for part in with_inner(spec)):
                page = page_of(part)
                said = f"{page.idea}\n{page.formula}\nSource: {page.source or _source_of(part)}"
                lines += [f"{name}.{part.under(part.name)}", *_indent(said), ""]
        if self.replaces_scaling:
            lines += ["instead: replaces the checkpoint's own schedule, if it came with one", ""]
        for key, override in self.layer_items:
            lines += [f"in layer {key}:", *_indent(self._overridden(override).describe()), ""]
        return "\n".join(lines).rstrip()


def _source_of(spec: Spec) -> str:
    """Where a method comes from whose docstring names no source."""
    origin = spec.origin
    return f"the package {origin.package}" if origin.package else f"the file {origin.file}" if origin.file else ""


def _indent(text: str) -> list[str]:
    return textwrap.indent(text, "    ").splitlines()


def _shapes(group: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in group.items()}


def _check_slot(name: str, value: Any, slot: Slot) -> Any:
    """The content of a slot in its type, or a refusal."""
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


def _check_layers(layers: Any) -> Layers:
    pairs = tuple(layers.items()) if isinstance(layers, Mapping) else layers
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidValue("layers", "a mapping from layers to extensions", layers)
    for key, extension in pairs:
        _check_layer(key, extension)
    if len({key for key, _ in pairs}) < len(pairs):
        raise Conflict.because("layers", f"layers repeats one of {[key for key, _ in pairs]}")
    return tuple(sorted(pairs, key=lambda pair: int(pair[0])))


def _check_layer(key: Any, extension: Any) -> None:
    if isinstance(key, bool) or not isinstance(key, int):
        raise InvalidValue("layers", "keyed by whole numbers", key)
    if not isinstance(extension, Extension):
        raise InvalidValue(f"layers[{key}]", "an Extension", extension)
    outside = [name for name in extension.specs if name not in PER_LAYER]
    outside += ["layers"] * bool(extension.layers) + [INSTEAD] * extension.replaces_scaling
    for name in outside:
        remedy = "set instead on the whole extension" if name == INSTEAD else ""
        raise InvalidValue(f"layers[{key}]", f"made of {', '.join(PER_LAYER)}", name, remedy=remedy)


def _layer_index(key: int, facts: Facts) -> int:
    if isinstance(key, bool) or not isinstance(key, int) or not -facts.layers <= key < facts.layers:
        raise DoesNotFit("layer", f"one of the model's {facts.layers}, from {-facts.layers} to {facts.layers - 1}", key)
    return key % facts.layers


def _one_of(name: str, mine: Any, theirs: Any) -> Any:
    """Merge two values of a slot that holds one method: equal ones are fine, different ones conflict."""
    if mine and theirs and mine != theirs:
        raise Conflict.because(name, f"{mine} and {theirs} are both {WORDS[name]}", remedy="keep one")
    return mine or theirs


def _combine_schedules(mine: Frequencies | None, theirs: Frequencies | None) -> Frequencies | None:
    """One schedule of two: the wrappers of both, the later around the earlier, around the schedule that one has."""
    if mine is None or theirs is None or mine == theirs:
        return mine or theirs
    (core, wrappers), (other, more) = unwrap(mine), unwrap(theirs)
    for name in [wrapper.name for wrapper in wrappers if wrapper.name in {other.name for other in more}]:
        raise Conflict.because("frequencies", f"{mine} and {theirs} both have {name}", remedy=f"name {name} once")
    return wrap(_one_of("frequencies", core, other), wrappers + more)


def _merge_layers(mine: dict[int, Extension], theirs: dict[int, Extension]) -> dict[int, Extension]:
    both = [key for key in mine if key in theirs and mine[key] != theirs[key]]
    if both:
        raise Conflict.because("layers", f"both have layers {both}", remedy="keep one extension per layer")
    return {**mine, **theirs}


def _sees_all(reach: Reach, i: Tensor) -> bool:
    """Whether rows see every key before them, and themselves."""
    bounds = [span.bounds(i) for span in reach.spans()]
    return bool((sum(((stop - start).clamp(min=0) for start, stop in bounds), torch.zeros_like(i)) == i + 1).all())
