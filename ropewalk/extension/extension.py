"""Extension: one slot per factor of the equation. Every published method is one of these."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Generator, Tensor

from ropewalk.errors import Conflict, InvalidValue
from ropewalk.extension.notation import INSTEAD
from ropewalk.extension.outside import recognise
from ropewalk.extension.overrides import by_index, index_of, merge, pairs_of
from ropewalk.extension.slots import OVERRIDES, PER_HEAD, PER_LAYER, SLOTS, Slot, read_object, read_overrides, read_slot
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

Overrides = tuple[tuple[int, "Extension"], ...]


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One or several methods of length extrapolation, one slot per factor. An empty slot keeps the model's behaviour.

        from ropewalk.methods.frequencies import ByParts
        from ropewalk.methods.scales import LogN

        rw.Extension(frequencies=ByParts(factor=4), scales=(LogN(),)) == rw.parse("by_parts:factor=4+log_n")

    A checkpoint may come with its own schedule: a stretched table of frequencies. `frequencies` map that table. With
    `replaces_scaling` (`+instead` in notation) they replace it, as if the model had never been stretched.

    `layers` maps a layer (negative: from the last) to the extension of that layer; its empty slots keep those of the
    whole. `heads` maps a key head to the reach or the schedule of that head and of the query heads that read it, in
    every layer, or in one inside `layers`; its empty slots keep those of the layer.
    """

    frequencies: Frequencies | None = None
    reach: Reach | None = None
    biases: tuple[Bias, ...] = ()
    scales: tuple[Scale, ...] = ()
    positions: Positions | None = None
    decoding: Decoding | None = None
    surgery: tuple[Surgery, ...] = ()
    layers: Overrides | Mapping[int, Extension] = ()
    heads: Overrides | Mapping[int, Extension] = ()
    replaces_scaling: bool = False

    def __post_init__(self) -> None:
        for name, slot in SLOTS.items():
            object.__setattr__(self, name, _check_slot(name, getattr(self, name), slot))
            for spec in getattr(self, name) if slot.several else filter(None, [getattr(self, name)]):
                recognise(type(spec))
        for name in OVERRIDES:
            object.__setattr__(self, name, _check_overrides(name, getattr(self, name)))
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
    def writing(self) -> Extension:
        """What is in force in tokens that the model writes; the extension itself where that is the same."""
        reach = self.reach and self.reach.writing
        if reach is self.reach and not (self.layers or self.heads):
            return self
        layers = tuple((layer, part.writing) for layer, part in self.layer_items)
        heads = tuple((head, part.writing) for head, part in self.head_items)
        return replace(self, reach=reach, layers=layers, heads=heads)

    @property
    def phases(self) -> tuple[Extension, ...]:
        """What is in force in tokens that are read, and in those that the model writes, if that differs."""
        return (self,) if self.writing == self else (self, self.writing)

    @property
    def layer_items(self) -> Overrides:
        """`layers` as stored: pairs of a layer and its extension, in order."""
        return cast(Overrides, self.layers)

    @property
    def head_items(self) -> Overrides:
        """`heads` as stored: pairs of a key head and its extension, in order."""
        return cast(Overrides, self.heads)

    @property
    def reaches(self) -> list[Reach]:
        """The reach of a layer, and those of its heads that have another."""
        return [self.reach_or_causal, *(override.reach for _, override in self.head_items if override.reach)]

    @property
    def parts(self) -> list[Extension]:
        """The extension, and what it says of layers and of heads, each as it is stated."""
        layers = [part for _, override in self.layer_items for part in override.parts]
        return [self, *layers, *(override for _, override in self.head_items)]

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
        key = -1 if layer is None else index_of("layer", layer, facts.layers)
        return self._overridden(by_index("layer", self.layer_items, facts.layers).get(key) or Extension())

    def head_parts(self, facts: Facts) -> tuple[HeadPart, ...]:
        """The key heads of one layer, together where the same is in force in them."""
        by_head, parts = by_index("head", self.head_items, facts.groups), dict[Extension, list[int]]()
        rest = replace(self, layers=(), heads=())
        for head in range(facts.groups):
            part = replace(self._overridden(by_head[head]), heads=()) if head in by_head else rest
            parts.setdefault(part, []).append(head)
        return tuple(HeadPart(extension, tuple(heads)) for extension, heads in parts.items())

    def _overridden(self, override: Extension) -> Extension:
        stated = {name: value for name in PER_LAYER if (value := getattr(override, name))}
        if override.frequencies is not None:
            stated["frequencies"] = rewrap(override.frequencies, self.frequencies)
        heads = {**dict(self.head_items), **dict(override.head_items)}
        return replace(self, **{**stated, "heads": heads, "layers": ()})

    def check_against(self, facts: Facts) -> None:
        """Refuse a model that this extension does not fit, before anything is computed or changed."""
        facts = self.builds_on(facts)
        for override in dict.fromkeys(by_index("layer", self.layer_items, facts.layers).values()):
            self._overridden(override).check_against(facts)
        if (writing := self.writing) != self:
            writing.check_against(facts)
        if self.heads:
            for part in self.head_parts(facts):
                part.extension.check_against(facts)
        self.frequencies_or_rope.check_against(facts)
        familiar_len = min(facts.trained_len * self.frequencies_or_rope.stretch, MOST_POSITIONS)
        familiar = replace(facts, trained_len=int(familiar_len))
        for name, specs in self.specs.items():
            for spec in specs:
                spec.check_against(familiar if name == "reach" else facts)
        if self.biases:
            row = torch.tensor([min(LONG_FACTOR * facts.trained_len, MOST_POSITIONS)])
            reached, sees_all = furthest(self.reach_or_causal, int(row)), _sees_all(self.reach_or_causal, row)
            for bias in self.biases:
                bias.check_reached(reached, sees_all, facts)

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
        _check_heads_keep_it(self, other)
        _check_heads_keep_it(other, self)
        merged: dict[str, Any] = {}
        for name, slot in SLOTS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if slot.several:
                merged[name] = mine + tuple(spec for spec in theirs if spec not in mine)
            elif name == "frequencies":
                merged[name] = _combine_schedules(mine, theirs)
            else:
                merged[name] = _one_of(name, mine, theirs)
        for name in OVERRIDES:
            merged[name] = merge(name, dict(getattr(self, name)), dict(getattr(other, name)))
        return Extension(**merged, replaces_scaling=self.replaces_scaling or other.replaces_scaling)

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
        for name in OVERRIDES:
            theirs = dict(getattr(other, name))
            mine = {key: override.over(theirs.get(key, Extension())) for key, override in getattr(self, name)}
            merged[name] = {**theirs, **mine}
        return Extension(**merged, replaces_scaling=self.replaces_scaling or other.replaces_scaling)

    def to_json(self) -> Json:
        """Every filled slot, every method with all its parameters, so that it survives a change of defaults."""
        values: Json = {}
        for name, specs in self.specs.items():
            values[name] = [spec.to_json() for spec in specs] if SLOTS[name].several else specs[0].to_json()
        for name in OVERRIDES:
            if overrides := getattr(self, name):
                values[name] = {str(key): override.to_json() for key, override in overrides}
        return {**values, INSTEAD: True} if self.replaces_scaling else values

    @classmethod
    def from_json(cls, values: str | Mapping[str, Any]) -> Extension:
        """The inverse of `to_json`, from a dict or a JSON text. Unknown keys are errors."""
        read = read_object(values)
        filled = {name: read_slot(name, value) for name, value in read.items() if name in SLOTS}
        for name in OVERRIDES:
            stated = read_overrides(name, read.get(name, {}))
            filled[name] = tuple((key, cls.from_json(content)) for key, content in stated)
        return cls(**filled, replaces_scaling=read.get(INSTEAD, False))

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
            if override.specs:
                whole = replace(self._overridden(override), heads=())
                lines += [f"in layer {key}:", *_indent(whole.describe()), ""]
            lines += [f"in layer {key}, {line}" for line in override.heads_in_words()]
        lines += [f"in {line}" for line in self.heads_in_words()]
        return "\n".join(lines).rstrip()

    def heads_in_words(self) -> list[str]:
        """What is in force in key heads, a line for each different one."""
        stated: dict[str, list[str]] = {}
        for key, override in self.head_items:
            words = " and ".join(f"{name}.{spec}" for name, specs in override.specs.items() for spec in specs)
            stated.setdefault(words, []).append(str(key))
        return [f"key head{'s' * (len(keys) > 1)} {', '.join(keys)}: {words}" for words, keys in stated.items()]


class HeadPart(NamedTuple):
    """Key heads of a layer with the extension that is in force in them, which has no `heads`."""

    extension: Extension
    key_heads: tuple[int, ...]

    def query_heads(self, facts: Facts) -> tuple[int, ...]:
        """The query heads that read them."""
        shared_by = facts.heads // facts.groups
        return tuple(head * shared_by + nth for head in self.key_heads for nth in range(shared_by))


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


def _check_overrides(kind: str, overrides: Any) -> Overrides:
    pairs = pairs_of(kind, overrides)
    for key, extension in pairs:
        _check_override(kind, key, extension)
    return pairs


def _check_override(kind: str, key: Any, extension: Any) -> None:
    if not isinstance(extension, Extension):
        raise InvalidValue(f"{kind}[{key}]", "an Extension", extension)
    allowed = PER_LAYER if kind == "layers" else PER_HEAD
    outside = [name for name in extension.specs if name not in allowed]
    outside += ["layers"] * bool(extension.layers) + ["heads"] * (kind == "heads" and bool(extension.heads))
    for name in outside + [INSTEAD] * extension.replaces_scaling:
        remedy = "set instead on the whole extension" if name == INSTEAD else ""
        remedy = f"set {name} on the layer, or on the whole" if kind == "heads" and name in PER_LAYER else remedy
        raise InvalidValue(f"{kind}[{key}]", f"made of {', '.join(allowed)}", name, remedy=remedy)


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


def _check_heads_keep_it(whole: Extension, other: Extension) -> None:
    """Refuse a schedule that key heads of the other term would not have."""
    core = unwrap(whole.frequencies).core
    for part in (other, *(override for _, override in other.layer_items)):
        for _, stated in part.head_items:
            _one_of("frequencies", core, unwrap(stated.frequencies).core)


def _sees_all(reach: Reach, i: Tensor) -> bool:
    """Whether rows see every key before them, and themselves."""
    bounds = [span.bounds(i) for span in reach.spans()]
    return bool((sum(((stop - start).clamp(min=0) for start, stop in bounds), torch.zeros_like(i)) == i + 1).all())
