"""A scale of its rows that a model computes itself, before attention gets the queries; read from its config.

Ministral 3 and Mistral 4 have it in every layer, Llama 4 in layers without rotation. Its steps are thousands of tokens
long, so that the probe's short texts do not show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.hf.probe.facts import parts_of
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.methods.facts import Facts
from ropewalk.methods.scales import Llama4Temperature

IN_PARAMETERS, IN_CONFIG = "llama_4_scaling_beta", "attn_temperature_tuning"


def require_scaled_once(
    config: Any, layers: Sequence[ProbedLayer], extension: Extension, facts: Sequence[Facts]
) -> None:
    """Refuse Llama 4's temperature in a layer that computes it already: it would count twice."""
    for depth, (layer, known) in enumerate(zip(layers, facts, strict=True)):
        scales = extension.at_layer(depth, known).scales
        if not any(isinstance(spec, Llama4Temperature) for spec in scales):
            continue
        if setting := own_query_scale(config, layer):
            sentence = f"the model has llama4_temperature of its own ({setting} in its config), which would count twice"
            raise DoesNotFit.because("scales", sentence, remedy="leave llama4_temperature out")


def own_query_scale(config: Any, layer: ProbedLayer) -> str:
    """The setting by which a layer scales its queries by their positions; empty where there is none."""
    if any(part.get(IN_PARAMETERS) for part in parts_of(config).values()):
        return IN_PARAMETERS
    return IN_CONFIG if getattr(config, IN_CONFIG, False) and not layer.rotating else ""
