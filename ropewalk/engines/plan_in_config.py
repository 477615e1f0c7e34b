"""The plans in a model's config. Nothing is stored in the process: several models, each by its own config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ropewalk.engines.layer_plan import LayerPlan, ModelPlan
from ropewalk.hf.checkpoint.closed_config import ROPE_TYPE

KEY = "ropewalk"  # of the plan among rope parameters, and of the extension's line in the text config


def plan_in(rope_parameters: Mapping[str, Any] | None) -> ModelPlan | None:
    """The plan among the rope parameters of a model, or of one type of its layers."""
    if not rope_parameters or rope_parameters.get("rope_type") != ROPE_TYPE:
        return None
    return read(rope_parameters.get(KEY, ""))


@lru_cache(maxsize=32)
def read(text: str) -> ModelPlan:
    """A plan from its JSON text. One text is one object."""
    return ModelPlan.from_json(text)


def plans_of(config: Any) -> list[ModelPlan]:
    """The plans of a text config: one, or one for each type of layers that the extension changes."""
    return [plan for parameters in _parameters(config) if (plan := plan_in(parameters)) is not None]


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
