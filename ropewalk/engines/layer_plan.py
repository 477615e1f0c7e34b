"""What an engine computes in each layer: written into the model's config by export, read by the engine's plugin.

A layer without a plan is the engine's own business. A plan is carried by the engine's rotary modules (*tables*) where
one static table and one factor per query row say it all; anything else needs Ropewalk's attention in the engine.
Nothing is stored in the process: several models, each by its own config.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import Unreadable, name_errors
from ropewalk.extension.extension import Extension
from ropewalk.extension.outside import FileMethod, admit, files_in
from ropewalk.files import read_json
from ropewalk.hf.checkpoint.closed_config import ROPE_TYPE
from ropewalk.hf.checkpoint.own_files import folder_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import Causal, Window
from ropewalk.methods.record import parameters
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import Json, Weights

KEY = "ropewalk"  # of the plan among rope parameters, and of the extension's line in the text config
NUMBERS, FLAGS = ("scaling", "query_factor", "rotating_factor"), ("rotates", "norm_follows")


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerPlan:
    """One attention layer under an extension, as an engine computes it.

    The engine's own factor of the logits must be `scaling`; queries are multiplied by `query_factor` beyond it, and
    their rotating dimensions by `rotating_factor` as well. `facts` have the layer's own table, and count the heads of
    the whole model. The sinks of a model are the engine's own weights, and not among `weights`.
    """

    extension: Extension
    facts: Facts
    scaling: float
    query_factor: float = 1.0
    rotating_factor: float = 1.0
    window: int | None = None  # the model's own, which the engine knows
    rotates: bool = True  # whether it has a rotary module in the engine
    norm_follows: bool = False  # whether queries and keys pass a norm after the rotation
    weights: Mapping[str, Weights] = field(default_factory=dict)  # what biases and scales learned, by method

    def row_scale(self, positions: Tensor) -> Tensor:
        """The factor of the queries at these positions, [heads or 1, positions], float64."""
        whole = [spec for spec in self.extension.scales if not spec.of_rotation]
        return self.query_factor * self._product(whole, positions)

    def rotation_scale(self, positions: Tensor) -> Tensor:
        """One more factor of their rotating dimensions."""
        return self.rotating_factor * self._product([s for s in self.extension.scales if s.of_rotation], positions)

    def _product(self, scales: Sequence[Scale], positions: Tensor) -> Tensor:
        scale_hi = torch.ones_like(positions, dtype=torch.float64)[None]
        for spec in scales:
            scale_hi = scale_hi * spec.scale(positions, self.facts, self.weights.get(spec.name, {}))
        return scale_hi

    def to_json(self) -> Json:
        """Every field; `from_json` is the inverse."""
        facts = {parameter.name: getattr(self.facts, parameter.name) for parameter in parameters(Facts)}
        weights = {name: {key: x.tolist() for key, x in group.items()} for name, group in self.weights.items()}
        values = {name: getattr(self, name) for name in (*NUMBERS, "window", *FLAGS)}
        return {"extension": self.extension.to_json(), "facts": facts, "weights": weights, **values}

    @classmethod
    def from_json(cls, values: Any) -> LayerPlan:
        """Read one layer. Unknown and missing keys are errors."""
        _require_keys("layer plan", values, [*cls.__dataclass_fields__])
        _require_keys("facts", values["facts"], [parameter.name for parameter in parameters(Facts)])
        extension, facts = Extension.from_json(values["extension"]), Facts(**values["facts"])
        plan = cls(**{**values, "extension": extension, "facts": facts, "weights": _weights(values["weights"])})
        plan._check()
        return plan

    def _check(self) -> None:
        for name in NUMBERS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise Unreadable(name, "a number above 0", value)
        if self.window is not None and (isinstance(self.window, bool) or not isinstance(self.window, int)):
            raise Unreadable("window", "a whole number of keys, or nothing", self.window)
        for name in FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise Unreadable(name, "true or false", getattr(self, name))
        self.extension.check_against(self.facts)
        self.extension.check_weights(self.weights, replace(self.facts, sinks=False, weighted=False))


class RotaryPlan(NamedTuple):
    """What a rotary module computes under a plan that tables carry."""

    inv_freq: Tensor  # radians per position of every pair, float64
    amplitude: float  # the factor of cos and sin, for queries and keys each
    row_scale: Tensor | None  # the factor of the query at every position, float64; None where it is 1 everywhere


@dataclass(frozen=True, eq=False)
class ModelPlan:
    """The plans of a model's attention layers, in order; None for layers that the extension leaves alone.

    plan = ModelPlan.from_json(config["rope_parameters"]["ropewalk"])
    plan.is_tables or print(plan.why_not_tables)
    """

    layers: tuple[LayerPlan | None, ...]
    target_len: int  # positions that the engine may serve
    line: str  # the extension in one line, for people
    ropewalk: str  # the version that wrote it
    shorter: tuple[ModelPlan, ...] = ()  # those of requests that end sooner, by growing `target_len`

    def to_json(self) -> str:
        """One JSON text, with equal layers stored once."""
        plans: dict[str, Json] = {}  # by their JSON text
        layers = [None if layer is None else _place_in(plans, layer.to_json()) for layer in self.layers]
        values: dict[str, Any] = {"ropewalk": self.ropewalk, "line": self.line, "target_len": self.target_len}
        if self.shorter:
            values["shorter"] = [plan.to_json() for plan in self.shorter]
        return json.dumps({**values, "layers": layers, "plans": [*plans.values()]})

    @classmethod
    def from_json(cls, text: str) -> ModelPlan:
        """The inverse of `to_json`. Unknown keys, and methods that this version does not know, are errors."""
        values = read_json(text, "plan") if isinstance(text, str) else text
        shorter = values.get("shorter", []) if isinstance(values, dict) else []
        keys = ["ropewalk", "line", "target_len", "layers", "plans"]
        _require_keys("plan", values, [*keys, "shorter"] if shorter else keys)
        with name_errors(f"plan of ropewalk {values['ropewalk']}"):
            target_len, layers, plans = values["target_len"], values["layers"], values["plans"]
            if isinstance(target_len, bool) or not isinstance(target_len, int) or target_len < 1:
                raise Unreadable("target_len", "a whole number of tokens", target_len)
            _require_indices(layers, plans)
            read = [LayerPlan.from_json(plan) for plan in plans]
            chosen = tuple(None if index is None else read[index] for index in layers)
            plan = cls(chosen, target_len, str(values["line"]), str(values["ropewalk"]))
            return replace(plan, shorter=_read_shorter(shorter, plan))

    @property
    def by_request(self) -> tuple[ModelPlan, ...]:
        """The plans that one is chosen from for each request, by growing length; or this one alone."""
        return (*self.shorter, self)

    def index_of(self, length: int) -> int:
        """Which of them computes a request of so many tokens with its answer: the first that covers it."""
        return sum(plan.target_len < length for plan in self.shorter)

    @property
    def planned(self) -> list[LayerPlan]:
        """The layers that have a plan."""
        return [layer for layer in self.layers if layer is not None]

    @property
    def is_tables(self) -> bool:
        """Whether rotary modules carry it all; otherwise Ropewalk's attention is needed."""
        return not self.why_not_tables

    @property
    def reads_images(self) -> bool:
        """Whether tokens may have several positions, such as those of images: one table says all."""
        return self.is_tables and all(plan.rotary(plan.target_len).row_scale is None for plan in self.by_request)

    @cached_property
    def why_not_tables(self) -> str:
        """What rotary modules cannot carry; empty where they carry it all."""
        with torch.device("cpu"):  # engines build models under a default device of their own
            reasons = [reason for layer in self.planned if (reason := _why_not_tables(layer, self.target_len))]
            if reasons:
                return reasons[0]
            first, *others = [_rotation_of(layer) for layer in self.planned]
            return "layers rotate, or scale, differently" if any(other != first for other in others) else ""

    def rotary(self, rows: int) -> RotaryPlan:
        """What the rotary modules compute for positions below `rows`; only where `is_tables`."""
        layer = self.planned[0]
        with torch.device("cpu"):
            scale, rotation = (of_rows(torch.arange(rows))[0] for of_rows in (layer.row_scale, layer.rotation_scale))
            table = _table(layer)
        all_rotate = layer.facts.rotating == layer.facts.head_dim  # then cos and sin reach every logit
        if all_rotate:
            scale, rotation = scale * rotation, torch.ones_like(rotation)
        constant = bool((scale == scale[0]).all())
        whole = constant and all_rotate
        amplitude = math.sqrt(float(rotation[0]) * (float(scale[0]) if whole else 1.0))
        return RotaryPlan(table, amplitude, None if whole or (constant and scale[0] == 1) else scale)


def _place_in(plans: dict[str, Json], values: Json) -> int:
    """The index of a layer among different ones, where it is added if it is new."""
    text = json.dumps(values)
    plans.setdefault(text, values)
    return [*plans].index(text)


def _why_not_tables(layer: LayerPlan, target_len: int) -> str:
    """What a rotary module cannot carry in one layer; empty where it carries it all."""
    extension, facts = layer.extension, layer.facts
    if extension.heads:
        return "its heads differ"
    if extension.biases:
        return f"{extension.biases[0].name} adds to the logits"
    unchanged = None if layer.window is None else Window(window=layer.window)
    if not isinstance(extension.reach_or_causal, Causal) and extension.reach != unchanged:
        return f"{extension.reach_or_causal.name} changes which keys a query sees, or where"
    if not layer.rotates:
        return f"{_first_scale(layer)} scales layers that do not rotate"
    if len(extension.frequencies_or_rope.stages(facts, target_len)) > 1:
        return f"{extension.frequencies_or_rope.name} rotates rows of different lengths differently"
    if extension.frequencies_or_rope.table(facts, 1).log_decay.any():
        return f"{extension.frequencies_or_rope.name} decays with the distance"
    scale = layer.row_scale(torch.arange(2))
    if any(spec.weights(facts) for spec in extension.scales) or len(scale) > 1:
        return f"{_first_scale(layer)} scales heads differently"
    if facts.rotating < facts.head_dim and any(spec.of_rotation and spec.of_row for spec in extension.scales):
        return f"{_first_scale(layer)} scales the rotating dimensions of every row differently"
    if layer.norm_follows and (extension.scales or layer.query_factor != 1 or layer.rotating_factor != 1):
        return f"a norm after the rotation undoes {_first_scale(layer)}"
    return ""


def _first_scale(layer: LayerPlan) -> str:
    return layer.extension.scales[0].name if layer.extension.scales else "a temperature"


def _table(layer: LayerPlan) -> Tensor:
    return layer.extension.frequencies_or_rope.table(layer.facts, 1).inv_freq.double()


def _rotation_of(layer: LayerPlan) -> tuple[Any, ...]:
    """What layers that share a rotary module must have in common."""
    facts = layer.facts
    shape = (facts.head_dim, facts.rotating, facts.interleaved)
    factors = (layer.query_factor, layer.rotating_factor, facts.trained_len, layer.extension.scales)
    return (tuple(_table(layer).tolist()), shape, factors)


def _require_keys(field: str, values: Any, keys: Sequence[str]) -> None:
    """Refuse anything but an object of exactly these keys."""
    if not isinstance(values, Mapping) or set(values) != set(keys):
        got = sorted(values) if isinstance(values, Mapping) else values
        raise Unreadable(field, f"a JSON object of {', '.join(keys)}", got, remedy="export the model again")


def _read_shorter(texts: Any, whole: ModelPlan) -> tuple[ModelPlan, ...]:
    """The plans of shorter requests: of the same layers, by growing length, and all in tables."""
    if not isinstance(texts, list):
        raise Unreadable("shorter", "a list of plans", texts)
    shorter = tuple(map(ModelPlan.from_json, texts))
    lengths = [plan.target_len for plan in (*shorter, whole)]
    alike = all(
        [layer is None for layer in plan.layers] == [layer is None for layer in whole.layers] for plan in shorter
    )
    if lengths != sorted(set(lengths)) or not alike or (shorter and not all(p.is_tables for p in (*shorter, whole))):
        raise Unreadable("shorter", "plans of the same layers, by growing length, that tables carry", lengths)
    return shorter


def _require_indices(layers: Any, plans: Any) -> None:
    """Refuse layers that do not point into the plans."""
    if not isinstance(plans, list) or not isinstance(layers, list):
        raise Unreadable("plan", "lists of layers and plans", f"{layers!r}, {plans!r}")
    known = [None, *range(len(plans))]
    wrong = [index for index in layers if isinstance(index, bool) or index not in known]
    if wrong or not any(index is not None for index in layers):
        raise Unreadable("layers", f"nothing, or an index below {len(plans)}, and one at least", layers)


def _weights(values: Any) -> dict[str, dict[str, Tensor]]:
    """Learned numbers from lists, float64."""
    try:
        groups = {name: group.items() for name, group in values.items()}
        return {name: {key: torch.tensor(x, dtype=torch.float64) for key, x in group} for name, group in groups.items()}
    except (AttributeError, TypeError, ValueError) as wrong:
        raise Unreadable("weights", "lists of numbers by method and name", values) from wrong


# The plans in a model's config.


def plan_in(rope_parameters: Mapping[str, Any] | None) -> ModelPlan | None:
    """The plan among the rope parameters of a model, or of one type of its layers."""
    if not rope_parameters or rope_parameters.get("rope_type") != ROPE_TYPE:
        return None
    return read_plan(rope_parameters.get(KEY, ""))


@lru_cache(maxsize=32)
def read_plan(text: str) -> ModelPlan:
    """A plan from its JSON text. One text is one object."""
    return ModelPlan.from_json(text)


def plans_of(config: Any) -> list[ModelPlan]:
    """The plans of a text config: one, or one for each type of layers that the extension changes."""
    return [plan for parameters in _parameters(config) if (plan := plan_in(parameters)) is not None]


def plans_of_model(model_config: Any) -> list[ModelPlan]:
    """The plans in the config that vLLM has of a model; each of its processes asks here before it reads one.

    Methods that lie as files in the model's folder run only where vLLM was started with --trust-remote-code, and only
    if they have the hash of the export. A method of a package is found where that package is installed beside vLLM.
    """
    name = getattr(model_config, "hf_config_path", None) or model_config.model
    admit_methods(model_config.hf_text_config, folder_of(str(name)), trusted=bool(model_config.trust_remote_code))
    return plans_of(model_config.hf_text_config)


def admit_methods(config: Any, folder: Path | None, *, trusted: bool) -> None:
    """Let the methods of plans run that lie as files in the folder of their config, as `outside.admit` does."""
    for part in _parameters(config):
        if part.get("rope_type") == ROPE_TYPE:
            _admit(part.get(KEY, ""), folder, trusted)


@lru_cache(maxsize=32)
def _admit(text: str, folder: Path | None, trusted: bool) -> None:
    methods = methods_in_files(text)
    if methods and folder is None:
        sentence = f"the method {methods[0].name} lies as code in {methods[0].file}, in a folder that is not here"
        raise Unreadable.because("plan", sentence, remedy="download the folder first, and name that")
    if folder is not None:
        admit([method._asdict() for method in methods], folder, trusted=trusted)


def methods_in_files(text: Any) -> list[FileMethod]:
    """The methods of files in the JSON text of a plan, those of shorter requests included."""
    values = read_json(text, "plan") if isinstance(text, str) and text else text
    shorter = values.get("shorter", []) if isinstance(values, dict) else []
    inside = [method for one in shorter if isinstance(one, str) for method in methods_in_files(one)]
    return list(dict.fromkeys([*files_in(values), *inside]))


def plan_of_layer(config: Any, index: int) -> tuple[ModelPlan, LayerPlan] | None:
    """The plan of the layer with this number in the model, with that of its model; None where there is none.

    planned = plan_of_layer(vllm_config.model_config.hf_text_config, extract_layer_index(prefix))
    if planned is not None and not planned[0].is_tables: ...  # Ropewalk's attention computes it
    """
    for plan in plans_of(config):
        layer = plan.layers[index] if index < len(plan.layers) else None
        if layer is not None:
            return plan, layer
    return None


def _parameters(config: Any) -> Iterator[Mapping[str, Any]]:
    parameters = getattr(config, "rope_parameters", None) or {}
    if not isinstance(parameters, Mapping):
        return
    nested = [part for part in parameters.values() if isinstance(part, Mapping)]
    yield from nested or [parameters]
